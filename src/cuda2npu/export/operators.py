"""The operators and opsets that the ONNX parser of CANN's ATC knows.

ATC looks an operator up as ``ai.onnx::OPSET::NAME``, with the opset that the file declares for all
of its operators (``OnnxModelParser::ConstructOriType`` in the Graph Engine of CANN); the published
operator plugins register those names for the opsets 8 to 18. A custom operator of CANN may know
others, which is why what is missing here is pointed out and not called impossible.
"""

from __future__ import annotations

LOWEST, HIGHEST = 8, 18
"""The opsets for which the operator plugins of CANN register standard operators."""

SOURCE = "list of supported ONNX operators of CANN 8.0, and the operator plugins of 2025"

SUPPORTED = frozenset(
    """
    Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool
    BatchNormalization BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip
    Compress Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace Det
    Div Dropout Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements
    GatherND Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample
    GRU Hardmax HardSigmoid HardSwish Identity If InstanceNormalization IsInf IsNaN
    LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool LRN LSTM
    MatMul Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization Min Mod Mul Multinomial
    Neg NonMaxSuppression NonZero Not OneHot Or Pad Pow PRelu RandomNormal RandomNormalLike
    RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
    Reshape Resize ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Selu Shape
    Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh TfIdfVectorizer ThresholdedRelu Tile TopK
    Transpose Trilu Unsqueeze Where Xor
    Bernoulli ConcatFromSequence DequantizeLinear SequenceConstruct SplitToSequence Unique Upsample
    """.split()
)
"""By their names in ONNX. The last line is of the plugins alone."""

STANDARD = ("", "ai.onnx")
"""The domain of the standard operators, by its two names."""
OWN = "npu"
"""The domain of the operators that torch_npu exports and CANN brings the parsers of."""

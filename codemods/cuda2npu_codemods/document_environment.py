"""Environment variables of CUDA and NCCL that documents set: configs, containers, jobs."""

from __future__ import annotations

from cuda2npu.rule import Fix, FixLevel, Report, leave, report, rewrite, rule
from cuda2npu.tokens import ConfigKey, DocumentSite, Variable
from cuda2npu_codemods.variables import (
    ALLOCATOR,
    COUNTERPARTS,
    NPU_ALLOCATOR,
    NPU_VISIBLE,
    VISIBLE,
    WORDS,
    replaced,
    value_problem,
    variable,
    variable_advice,
)


@rule(
    "NPU837",
    "environment-in-config",
    on=(Variable, ConfigKey),
    words=tuple(COUNTERPARTS),
    fix=FixLevel.SAFE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL that has a counterpart on the NPU",
    quiet=True,
    examples=(
        rewrite(
            'env:\n  CUDA_VISIBLE_DEVICES: "0,1"  # two\n',
            'env:\n  ASCEND_RT_VISIBLE_DEVICES: "0,1"  # two\n',
            path="job.yaml",
        ),
        rewrite(
            "services:\n  train:\n    environment:\n      - CUDA_LAUNCH_BLOCKING=1\n",
            "services:\n  train:\n    environment:\n      - ASCEND_LAUNCH_BLOCKING=1\n",
            path="compose.yaml",
        ),
        rewrite(
            "spec:\n  env:\n  - name: CUDA_VISIBLE_DEVICES\n    value: '0'\n",
            "spec:\n  env:\n  - name: ASCEND_RT_VISIBLE_DEVICES\n    value: '0'\n",
            path="pod.yaml",
        ),
        rewrite(
            "FROM base\nENV CUDA_VISIBLE_DEVICES=0\n",
            "FROM base\nENV ASCEND_RT_VISIBLE_DEVICES=0\n",
            path="Dockerfile",
        ),
        rewrite(
            "RUN CUDA_VISIBLE_DEVICES=0 python a.py\n",
            "RUN ASCEND_RT_VISIBLE_DEVICES=0 python a.py\n",
            path="Dockerfile",
        ),
        leave("text: CUDA_VISIBLE_DEVICES\n", path="c.yaml"),
        leave("env:\n  CUDA_VISIBLE_DEVICES: 0\n  ASCEND_RT_VISIBLE_DEVICES: 0\n", path="job.yaml"),
        leave("env:\n  NCCL_DEBUG: INFO\n", path="job.yaml"),
    ),
)
def environment_in_config(token: Variable | ConfigKey, site: DocumentSite) -> Fix | None:
    old = token.text if isinstance(token, Variable) else token.key
    new = variable(old, site.options.torch_npu)
    if new is None or new in site.text:
        return None
    if isinstance(token, Variable):
        return Fix({token: new}, replaced(old, new))
    message = (
        f"{old} is a key, and nothing here shows that it becomes an environment variable: if it "
        f"does, write {new}, or run with --unsafe"
    )
    edits = token.becomes(new)
    return Fix(edits, message, level=FixLevel.UNSAFE) if edits else None


@rule(
    "NPU838",
    "environment-without-counterpart-in-config",
    on=Variable,
    words=WORDS,
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="an environment variable of CUDA or NCCL that nothing on the NPU reads",
    quiet=True,
    examples=(
        report("env:\n  NCCL_DEBUG: INFO\n", path="job.yaml"),
        report("FROM base\nENV TORCH_CUDA_ARCH_LIST='7.0 8.0+PTX'\n", path="Dockerfile"),
        report("ARG FORCE_CUDA=1\n", path="Dockerfile"),
        leave("env:\n  CUDA_VISIBLE_DEVICES: 0\n", path="job.yaml"),
        leave("notes: NCCL_DEBUG\n", path="job.yaml"),
    ),
)
def environment_without_counterpart(token: Variable, site: DocumentSite) -> Report | None:
    name = token.text
    if variable(name, site.options.torch_npu) or _first(name, site) is not token:
        return None
    advice = variable_advice(name)
    return Report(f"nothing on the NPU reads {name}: {advice}") if advice else None


def _first(name: str, site: DocumentSite) -> Variable | None:
    """Where a document names the variable first: ``ARG NAME`` leads ``ENV NAME=$NAME``."""
    found = (t for t in site.tokens if isinstance(t, Variable) and t.text == name)
    return next(found, None)


@rule(
    "NPU839",
    "visible-devices-in-config",
    on=Variable,
    words=(VISIBLE, NPU_VISIBLE, ALLOCATOR, NPU_ALLOCATOR),
    fix=FixLevel.NONE,
    missed_by_shim=True,
    why="the NPU's variable takes other values than CUDA's",
    quiet=True,
    examples=(
        report('env:\n  CUDA_VISIBLE_DEVICES: ""\n', path="job.yaml"),
        report("ENV ASCEND_RT_VISIBLE_DEVICES=1,0\n", path="Dockerfile"),
        leave('env:\n  CUDA_VISIBLE_DEVICES: "0,1"\n', path="job.yaml"),
        leave('env:\n  CUDA_VISIBLE_DEVICES: "${{ matrix.gpu }}"\n', path="job.yaml"),
    ),
)
def visible_devices_in_config(token: Variable, site: DocumentSite) -> Report | None:
    if token.value is None or "$" in token.value or "{" in token.value:
        return None
    problem = value_problem(token.text, token.value)
    return Report(problem) if problem else None

"""Rules about a whole file or statement that the engine itself asks, listed like any other."""

from __future__ import annotations

from cuda2npu.model import FixLevel, Target
from cuda2npu.rule import Outcome, Site, rewrite, rule


def _asked_by_engine(node: object, site: Site) -> Outcome:
    """No node of a statement shows what these rules are about."""
    return None


UNREADABLE = rule(
    "NPU000",
    "unreadable-statement",
    on=(),
    words=(),
    fix=FixLevel.NONE,
    quiet=True,
    why="this statement cannot be read by LibCST; look at its CUDA words by hand",
    examples=(),
)(_asked_by_engine)

SHIM_MISSING = rule(
    "NPU022",
    "shim-missing",
    on=(),
    words=(),
    fix=FixLevel.SAFE,
    targets=(Target.SHIM,),
    why="this script speaks of CUDA: transfer_to_npu, imported behind torch, turns its torch.cuda "
    "calls into torch.npu ones while it runs",
    examples=(
        rewrite(
            'import torch\nif __name__ == "__main__":\n    torch.ones(2).cuda()',
            "import torch\nimport torch_npu  # noqa: F401\n"
            "from torch_npu.contrib import transfer_to_npu  # noqa: F401\n"
            'if __name__ == "__main__":\n    torch.ones(2).cuda()',
        ),
    ),
)(_asked_by_engine)

FILE_RULES = (UNREADABLE, SHIM_MISSING)

"""The names that one torch_npu wheel offers, as ``extract_names`` records them."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from static_names import (
    Binding,
    Module,
    Package,
    attribute_names,
    dotted,
    flat,
    parameters,
    strings,
)

ROOT = "torch_npu"
_SKIPPED = ("torch_npu.testing", "torch_npu._inductor", "torch_npu.dynamo.", "torch_npu.onnx")
"""Test helpers and compiler internals: nothing that a port writes."""

_RECORDED = tuple(
    f"torch_npu.{name}"
    for name in ("npu", "profiler", "optim", "utils", "contrib", "distributed", "multiprocessing")
)
_UNRECORDED = (
    "torch_npu.npu._graph_tree",
    "torch_npu.npu._npugraph_",
    "torch_npu.npu._aclgraph_",
    "torch_npu.npu._kernel_check",
    "torch_npu.npu._stream_check",
)
"""Internals whose names would only make the table longer."""

_C_MEMBERS = {
    "torch_npu._C._NPUStreamBase": "npu_stream device priority query synchronize",
    "torch_npu._C._NPUEventBase": "npu_event device record wait query elapsed_time synchronize",
    "torch_npu._C._NPUGraph": "debug_dump enable_debug_mode",
    "torch_npu._C._distributed_c10d.ProcessGroupHCCL": "get_hccl_comm get_hccl_comm_name "
    "abort_hccl_comm",
    "torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options": "is_high_priority_stream "
    "global_ranks_in_group hccl_config group_id",
}
"""Members of compiled classes to look for: each counts where the library holds its name."""

_SCALER_MEMBERS = (
    "get_scale is_enabled get_growth_factor set_growth_factor get_backoff_factor "
    "set_backoff_factor get_growth_interval set_growth_interval"
)
"""What every gradient scaler inherits from torch's."""

_STREAM_IDENTITY = "stream_id device_index device_type"
"""Inherited by every stream from ``torch.Stream``."""

_DTYPES = "hifloat8 float8_e8m0fnu float8_e4m3fn float8_e5m2 float4_e2m1fn_x2 float4_e1m2fn_x2 int4"
"""Data types set on ``torch_npu`` from the enumeration ``_C._cd.DType``."""

_ENV = re.compile(r"(?:ASCEND|HCCL|PYTORCH|TORCH|NPU_ASD)_[A-Z0-9_]+")
_ENV_OTHERS = re.compile(
    "ACLNN_CACHE_LIMIT|COMBINED_ENABLE|CPU_AFFINITY_CONF|INF_NAN_MODE_(?:FORCE_DIS|EN)ABLE|"
    "MULTI_STREAM_MEMORY_REUSE|OOM_SNAPSHOT_(?:ENABLE|PATH)|P2P_HCCL_BUFFSIZE|PER_STREAM_QUEUE|"
    "STREAMS_PER_DEVICE|TASK_QUEUE_ENABLE|UNIFIED_MEMORY_ENABLE|ACL_DEVICE_SYNC_TIMEOUT"
)
_NOT_ENV = re.compile(
    r"TORCH_(?:LIBRARY|CHECK|INTERNAL|CUDNN)\w*|PYTORCH_DEFAULT|\w+_|"
    r"HCCL_(?:E_|SUCCESS|WORLD|COMM_|ROOT_INFO)\w*"
)
"""Macros and constants of the debug information."""

_SCHEMA = re.compile(rb"([a-z_][a-z0-9_]*(?:\.\w+)?)\(([\x20-\x7e]*)\) ?-> ?[\x20-\x7e]+\0")


@dataclass
class Found:
    """What one wheel offers."""

    names: set[str] = field(default_factory=set)
    env: set[str] = field(default_factory=set)
    signatures: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_wheel(path: str) -> Found:
    """Everything that is recorded of one wheel."""
    with zipfile.ZipFile(path) as wheel:
        package = Package.from_wheel(wheel, ROOT)
        libraries = [
            wheel.read(name)
            for name in wheel.namelist()
            if name.endswith(".so") and "torchair" not in name
        ]
    found = Found()
    reader = _Reader(package, libraries, found)
    for name in sorted(package.modules):
        if name == ROOT or (_is_recorded(name) and not reader.is_hidden(name)):
            reader.module(package.modules[name])
    reader.attributes_set()
    reader.operators()
    reader.dtypes()
    reader.backend()
    found.env = set(_environment(package, libraries))
    return found


def _is_recorded(name: str) -> bool:
    if not name.startswith(_RECORDED) or (name + ".").startswith(_UNRECORDED):
        return False
    private = [part for part in name.split(".")[1:] if part.startswith("_")]
    return not private or (len(private) == 1 and name.startswith("torch_npu.npu."))


def _modules(package: Package) -> Iterator[Module]:
    for name, module in package.modules.items():
        if not (name + ".").startswith(_SKIPPED):
            yield module


class _Reader:
    """Walks a package and fills a ``Found``."""

    def __init__(self, package: Package, libraries: list[bytes], found: Found) -> None:
        self.package = package
        self.libraries = libraries
        self.found = found
        self.c_uses = sorted(self._c_uses())

    def is_hidden(self, name: str) -> bool:
        """Whether the parent binds the name of a submodule to something else.

        ``torch_npu.npu.mstx`` is the class and not the module that defines it.
        """
        parent, _, last = name.rpartition(".")
        owner = self.package.modules.get(parent)
        if owner is None or last not in owner.names:
            return False
        found = self.package.resolve(owner, last)
        return found is not None and not isinstance(found.node, ast.Module)

    def module(self, module: Module) -> None:
        """The names of one module, and what its classes and instances hold."""
        keep_private = module.name.startswith("torch_npu.npu")
        self.found.names.add(module.name)
        declared = set(module.exported or ())
        for name in sorted({*module.names, *declared}):
            if name not in declared and (
                name.startswith("_" if not keep_private else "__") or self._is_noise(module, name)
            ):
                continue
            self._thing(f"{module.name}.{name}", module, name, deep=name in declared)

    def _is_noise(self, module: Module, name: str) -> bool:
        """Whether a name is only what the module itself imports: ``os``, ``Optional``."""
        found = self.package.resolve(module, name)
        if found is not None:
            home = found.home
            if home.startswith("torch_npu.utils._error_code") or home == ROOT:
                return home != module.name
            imported = home != module.name and not module.is_package
            return imported and not module.name.startswith("torch_npu.npu.")
        if module.names[name].node is not None:
            return False
        head, _, rest = self._foreign(module, name).partition(".")
        return not rest or head not in {ROOT, "torch"}

    def _thing(self, path: str, module: Module, name: str, deep: bool) -> None:
        """One name; with the members of a class where a port may need them."""
        self.found.names.add(path)
        binding = self.package.resolve(module, name)
        if binding is None:
            self._c_members(path, self._foreign(module, name))
        elif isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.found.signatures[path] = tuple(parameters(binding.node, bound=False))
        else:
            owner = self.package.class_of(binding)
            own = module.is_package or deep or binding.home == module.name
            wanted = own and (module.is_package or path.startswith("torch_npu.npu."))
            if wanted and owner is not None and isinstance(owner.node, ast.ClassDef):
                self._class(path, owner, constructor=owner is binding)

    def _foreign(self, module: Module, name: str) -> str:
        """The full name of something that is defined outside the package's source."""
        for _ in range(8):
            head, _, rest = name.partition(".")
            binding = module.names.get(head)
            if binding is None or binding.target is None:
                break
            name = f"{binding.target}.{rest}".rstrip(".")
            owner = self.package.modules.get(name.rpartition(".")[0])
            if owner is None or owner is module:
                break
            module, name = owner, name.rpartition(".")[2]
        return name

    def _class(self, path: str, binding: Binding, constructor: bool) -> None:
        seen: set[str] = set()
        queue: list[Binding | str] = [binding]
        while queue:
            current = queue.pop(0)
            if isinstance(current, str):
                self._c_members(path, current)
                continue
            assert isinstance(current.node, ast.ClassDef)
            outside = self.package.modules[current.home].members.get(current.node.name, [])
            for name in chain(attribute_names(current.node), outside):
                if not name.startswith("_"):
                    self.found.names.add(f"{path}.{name}")
            for name, names in _methods(current.node):
                is_constructor = name in {"__init__", "__new__"}
                where = path if is_constructor else f"{path}.{name}"
                if name in seen or (is_constructor and (not constructor or path in seen)):
                    continue
                seen |= {name, path} if is_constructor else {name}
                self.found.signatures[where] = names
            queue += self.package.bases(current)

    def _c_members(self, path: str, compiled: str) -> None:
        members = _C_MEMBERS.get(compiled, "").split()
        if compiled.endswith("_NPUStreamBase"):
            self.found.names |= {f"{path}.{name}" for name in _STREAM_IDENTITY.split()}
        if compiled.endswith("GradScaler"):
            self.found.names |= {f"{path}.{name}" for name in _SCALER_MEMBERS.split()}
        for name in members:
            if any(name.encode() + b"\0" in library for library in self.libraries):
                self.found.names.add(f"{path}.{name}")
        for use in self.c_uses:
            if use.startswith(compiled + "."):
                self.found.names.add(path + use[len(compiled) :])

    def _c_uses(self) -> Iterator[str]:
        """Full names below ``torch_npu._C`` that the package's own code uses."""
        prefixes = ("torch_npu._C._distributed_c10d.", "torch_npu._C._profiler.ProfilerActivity.")
        for module in _modules(self.package):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    uses = [f"{node.module}.{alias.name}" for alias in node.names]
                else:
                    name = dotted(node) if isinstance(node, ast.Attribute) else None
                    uses = [self._foreign(module, name)] if name else []
                yield from (use for use in uses if use.startswith(prefixes))

    def attributes_set(self) -> None:
        """What the package sets on ``torch_npu`` and on torch while it is imported."""
        for module in _modules(self.package):
            if module.name == "torch_npu.contrib.transfer_to_npu":
                continue
            for node in ast.walk(module.tree):
                for name in _targets(node):
                    if name.startswith("torch.npu."):
                        name = ROOT + name[len("torch") :]
                    owner, _, last = name.rpartition(".")
                    public = not any(part.startswith("_") for part in name.split("."))
                    if owner in {ROOT, "torch_npu.npu"} or (
                        name.startswith("torch.") and public and last != "npu"
                    ):
                        self.found.names.add(name)
            for name in ("_PUBLIC_API_ALIASES", "all_monkey_patches"):
                self._patch_table(module, name)

    def _patch_table(self, module: Module, name: str) -> None:
        """``[("distributed.gather", …), …]`` and ``[["nn", a_module_with_all], …]``."""
        table = module.names.get(name)
        for row in getattr(table.node, "elts", []) if table else []:
            target, source = row.elts
            where = f"torch.{target.value}"
            replaced = self.package.resolve(module, dotted(source) or "")
            if replaced and isinstance(replaced.node, ast.Module):
                exported = self.package.modules[replaced.home].exported or []
                self.found.names |= {f"{where}.{item}" for item in exported}
            elif "._" not in where:
                self.found.names.add(where)

    def operators(self) -> None:
        """Signatures of ``torch_npu.npu_…`` from the schemas in the libraries; ATB functions."""
        for library in self.libraries:
            for name, given in _SCHEMA.findall(library):
                path = f"torch_npu.{name.decode()}"
                if path in self.found.names:
                    self.found.signatures[path] = _schema_parameters(given.decode())
        module = self.package.modules.get("torch_npu.op_plugin.atb._atb_ops")
        for table, owner in (("API_LIST", ROOT), ("ATB_API_LIST", "torch_npu.atb")):
            if module and table in module.names:
                self.found.names.add(owner)
                names = strings(module.names[table].node)
                self.found.names |= {f"{owner}.{name}" for name in names}

    def dtypes(self) -> None:
        """``torch_npu.hifloat8`` and the like, where the release copies its enumeration."""
        copied = any(
            isinstance(node, ast.Attribute) and (dotted(node) or "").endswith("_cd.DType")
            for module in _modules(self.package)
            for node in ast.walk(module.tree)
        )
        for name in _DTYPES.split() if copied else ():
            if any(f"\0{name}\0".encode() in library for library in self.libraries):
                self.found.names.add(f"{ROOT}.{name}")

    def backend(self) -> None:
        """Names that torch makes when the package registers its device and its backends."""
        calls = [
            (dotted(node.func) or "", node)
            for module in _modules(self.package)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call)
        ]
        names = self.found.names
        for name, call in calls:
            first = call.args[0] if call.args else None
            value = first.value if isinstance(first, ast.Constant) else None
            if name.endswith("rename_privateuse1_backend") and value == "npu":
                names.add("torch.npu")
            elif name.endswith("generate_methods_for_privateuse1_backend"):
                for owner in ("Tensor", "UntypedStorage", "TypedStorage"):
                    names |= {f"torch.{owner}.npu", f"torch.{owner}.is_npu"}
                names.add("torch.nn.Module.npu")
            elif name.endswith("Backend.register_backend") and isinstance(value, str):
                names.add(f"torch.distributed.Backend.{value.upper()}")
            elif name.endswith("_rename_profiler_activity") and value == "npu":
                names.add("torch.profiler.ProfilerActivity.NPU")
        compiled = "torch_npu._C._distributed_c10d"
        names |= {use for use in self.c_uses if use.startswith(compiled) and "._" not in use[14:]}
        names |= {f"{compiled}.{use.split('.')[3]}" for use in self.c_uses if compiled in use}
        for path in [name for name in names if name in _C_MEMBERS]:
            self._c_members(path, path)


def _methods(class_node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Public methods and constructors with the parameters that a caller passes."""
    functions = [node for node in flat(class_node.body) if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda item: item.name != "__init__"):
        decorators = {dotted(item) for item in node.decorator_list}
        if decorators & {"property", "classproperty"}:
            continue
        if node.name in {"__init__", "__new__"} or not node.name.startswith("_"):
            yield node.name, tuple(parameters(node, bound="staticmethod" not in decorators))


def _targets(node: ast.AST) -> Iterator[str]:
    """The dotted names that a statement or a ``setattr`` sets; ``globals_dict["x"] = …`` too."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            name = dotted(target)
            if name and name.startswith("sharded_grad_scaler."):
                yield f"torch.distributed.fsdp.{name}"
            elif name and "." in name:
                yield name
            elif isinstance(target, ast.Subscript) and dotted(target.value) == "globals_dict":
                yield from (f"{ROOT}.{key}" for key in strings(ast.List([target.slice])))
    elif isinstance(node, ast.Call) and dotted(node.func) == "setattr" and len(node.args) == 3:
        owner = dotted(node.args[0])
        if owner and owner.startswith(("torch.", ROOT)):
            yield from (f"{owner}.{key}" for key in strings(ast.List([node.args[1]])))


def _schema_parameters(given: str) -> tuple[str, ...]:
    """``Tensor x, *, int[2] k=1`` becomes ``x``, ``*``, ``k``."""
    bare = re.sub(r"\"[^\"]*\"|'[^']*'|\([^()]*\)|\[[^\]]*\]", "", given)
    words = [part.split("=")[0].split()[-1:] for part in bare.split(",")]
    return tuple(word[0] for word in words if word)


def _environment(package: Package, libraries: list[bytes]) -> Iterator[str]:
    """Environment variables that the Python code and the libraries ask for."""
    for module in _modules(package):
        for node in ast.walk(module.tree):
            yield from (name for name in _asked(node) if re.fullmatch("[A-Z][A-Z0-9_]+", name))
    for library in libraries:
        for raw in re.findall(rb"(?<![\x20-\x7e])[A-Z][A-Z0-9_]{7,48}(?=\0)", library):
            name = raw.decode()
            wanted = _ENV.fullmatch(name) or _ENV_OTHERS.fullmatch(name)
            if wanted and not _NOT_ENV.fullmatch(name):
                yield name


def _asked(node: ast.AST) -> Iterator[str]:
    """``"X"`` of ``os.getenv("X")``, ``os.environ["X"]``, ``"X" in os.environ`` and the like."""
    key: ast.AST | None = None
    if isinstance(node, ast.Call) and node.args:
        name = dotted(node.func) or ""
        if name.endswith("getenv") or ".environ." in f".{name}":
            key = node.args[0]
    elif isinstance(node, ast.Subscript) and _is_environ(node.value):
        key = node.slice
    elif isinstance(node, ast.Compare) and any(_is_environ(item) for item in node.comparators):
        key = node.left
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        yield key.value


def _is_environ(node: ast.AST) -> bool:
    return (dotted(node) or "").endswith("environ")

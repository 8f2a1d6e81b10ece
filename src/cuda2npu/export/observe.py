"""Sees the ``torch.onnx.export`` calls of a script, and looks at each file there and then.

The script's call is made as it stands: its arguments, its file, its result.
"""

from __future__ import annotations

import functools
import inspect
import io
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from cuda2npu.export import graph
from cuda2npu.export.arguments import Call
from cuda2npu.export.examine import branches_found, examine
from cuda2npu.export.spec import CHANGED, DYNAMO, TRACE, Exported, Finding, Result, Spec
from cuda2npu.running.source import digest
from cuda2npu.running.tensors import call_arguments


class Observer:
    """Stands in for the exporter of torch while a script runs."""

    def __init__(self, spec: Spec, result: Result) -> None:
        self._spec = spec
        self._result = result
        self._unsaved: dict[int, tuple[Any, Mapping[str, Any], Exported]] = {}
        """Programs that went to no file yet."""
        self._files: dict[str, tuple[Exported, dict[Path, str]]] = {}
        """The last export to each file, and what the files of it held then."""

    def install(self) -> None:
        onnx: Any = torch.onnx
        onnx.export = self._watched(onnx.export)
        onnx.ONNXProgram.save = self._saved(onnx.ONNXProgram.save)

    def finish(self) -> None:
        """Look at the programs that the script never saved, and again at the files it wrote."""
        for exported, digests in self._files.values():
            if not all(path.is_file() and digest(path) == old for path, old in digests.items()):
                exported.findings.append(_CHANGED)
        for program, arguments, exported in list(self._unsaved.values()):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "model.onnx")
                program.save(path)
                exported.file = ""
                exported.notes.append("the script saves the program to no file")
                self._examine(exported, path, arguments)

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def export(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            exported = Exported("", "", f"{caller.f_code.co_filename}:{caller.f_lineno}")
            with branches_found(exported):
                program = original(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            self._seen(exported, bound.arguments, program)
            return program

        return export

    def _saved(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(program: Any, destination: Any, *args: Any, **kwargs: Any) -> Any:
            done = original(program, destination, *args, **kwargs)
            waiting = self._unsaved.pop(id(program), None)
            if waiting is not None and isinstance(destination, (str, os.PathLike)):
                _, arguments, exported = waiting
                exported.file = str(Path(destination).resolve())
                self._examine(exported, Path(exported.file), arguments)
            return done

        return save

    def _seen(self, exported: Exported, arguments: Mapping[str, Any], program: Any) -> None:
        exported.exporter = DYNAMO if arguments["dynamo"] else TRACE
        kind = arguments["operator_export_type"]
        if kind is not None and kind != torch.onnx.OperatorExportTypes.ONNX:
            exported.findings.append(_export_type(kind))
        self._result.exports.append(exported)
        target = arguments["f"]
        if target is None and program is not None:
            self._unsaved[id(program)] = program, arguments, exported
        elif isinstance(target, (str, os.PathLike)):
            exported.file = str(Path(target).resolve())
            self._examine(exported, Path(exported.file), arguments)
        elif isinstance(target, io.BytesIO):
            exported.notes.append("the script exports to memory: no commands are written")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "model.onnx")
                path.write_bytes(target.getvalue())
                self._examine(exported, path, arguments)
        else:
            exported.notes.append(
                f"exported to {type(target).__name__}: the file was not looked at"
            )

    def _examine(self, exported: Exported, path: Path, arguments: Mapping[str, Any]) -> None:
        """What goes wrong here is told in the report: the script goes on as it would alone."""
        try:
            if exported.file:
                self._keep(exported, path)
            examine(exported, path, _call(arguments), self._spec, arguments["input_names"] or ())
        except Exception as error:
            text = (
                f"the file could not be compared with the module: {type(error).__name__}: {error}"
            )
            advice = "see that the module runs on the inputs of the call in eval mode"
            exported.findings.append(Finding("not-compared", text, advice))

    def _keep(self, exported: Exported, path: Path) -> None:
        if exported.file in self._files:
            earlier, _ = self._files[exported.file]
            earlier.notes.append(f"a later export is written over it: {exported.place}")
        self._files[exported.file] = exported, graph.digests(path)


_CHANGED = Finding(
    CHANGED,
    "the script changed or removed the file after it was exported: the file that was compared is "
    "no more, and no commands are written",
    "let the script write what it makes of the file to another one, or check that with the module",
)


def _call(arguments: Mapping[str, Any]) -> Call:
    model = arguments["model"]
    if isinstance(model, torch.export.ExportedProgram):
        example: Any = model.example_inputs or ((), {})
        args, kwargs = call_arguments(arguments["args"], arguments["kwargs"])
        given = (args, kwargs) if args or kwargs else example
        return Call(model.module(), *given)
    return Call(model, *call_arguments(arguments["args"], arguments["kwargs"]))


def _export_type(kind: Any) -> Finding:
    name = str(kind).rpartition(".")[2]
    return Finding(
        "export-type",
        f"operator_export_type={name} leaves operators of torch in the file where ONNX has none",
        "export with OperatorExportTypes.ONNX, which names the operator that has no counterpart",
    )

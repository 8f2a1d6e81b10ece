"""What is collected about a project, from sources in memory."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest

from cuda2npu.engine import rewrite_source
from cuda2npu.gathering import collect, know
from cuda2npu.gathering.glance import glance
from cuda2npu.gathering.modules import Modules
from cuda2npu.gathering.outline import outline
from cuda2npu.gathering.roots import project_root
from cuda2npu.knowledge import BACKEND, DEVICE, FOREIGN, Knowledge, OwnClass
from cuda2npu.model import Options

OPTIONS = Options()
BATCH = """
class Batch:
    def cuda(self):
        self.x = self.x.cuda()
        return self
"""
FILES = {
    "data": BATCH,
    "settings": 'WHERE = "cuda"\n',
    "train": "import torch\nfrom settings import WHERE\nbatch = 1\ntorch.device(WHERE)\n",
    "tests/test_train": "patch('train.torch.cuda.is_available')\n",
}


def of(folders: dict[str, str] | None = None, **files: str) -> Knowledge:
    """The knowledge of a project with these files, all of them Python."""
    sources = {f"{name}.py": text for name, text in {**(folders or {}), **files}.items()}
    return know(
        lambda: ((name, text.encode()) for name, text in sources.items()),
        {name: name for name in sources},
        OPTIONS,
    )


def own(knowledge: Knowledge) -> list[OwnClass]:
    return list(knowledge.classes)


class TestFeeds:
    @pytest.mark.parametrize(
        ("reader", "kinds"),
        [
            ("torch.device(cfg.accel)", {DEVICE}),
            ('torch.device(cfg["accel"])', {DEVICE}),
            ('torch.device(cfg.get("accel", "cpu"))', {DEVICE}),
            ('kind = getattr(cfg, "accel")\ntorch.device(kind)', {DEVICE}),
            ("x.to(str(cfg.accel).lower())", {DEVICE}),
            ("torch.load(f, map_location=cfg.accel)", {DEVICE}),
            ("torch.zeros(2, device=cfg.accel)", {DEVICE}),
            ("init_device_mesh(cfg.accel, (2,))", {DEVICE}),
            ("dist.init_process_group(cfg.accel)", {BACKEND}),
            ("json.load(cfg.accel)", set()),
            ("print(cfg.accel)", set()),
            ("x.to(cfg.dtype)", set()),
            ("def f(accel): torch.device(accel)", set()),
        ],
    )
    def test_what_takes_a_key(self, reader: str, kinds: set[str]) -> None:
        head = "import json, torch\nimport torch.distributed as dist\n"
        known = of(config='class C:\n    accel: str = "cuda"\n', a=head + reader + "\n")
        assert known.feeds("accel") == kinds
        assert known.feeds("train.accel") == kinds

    def test_a_key_of_a_config_file_needs_no_default_in_python(self) -> None:
        known = of(a="import torch\nd = torch.device(cfg.train.accel)\n")
        assert known.feeds("train.accel") == {DEVICE}

    def test_flags_are_keys(self) -> None:
        known = of(a="import torch\nd = torch.device(args.my_accel)\n")
        assert known.feeds("my-accel") == {DEVICE}

    def test_a_name_with_two_meanings_proves_nothing(self) -> None:
        known = of(
            a='class C:\n    accel: str = "cuda"\n',
            b='class D:\n    accel: str = "turbo"\n',
            c="import torch\nd = torch.device(cfg.accel)\n",
        )
        assert known.feeds("accel") == set()

    def test_one_class_for_each_kind_of_device_is_no_setting(self) -> None:
        text = "class {0}:\n    def __init__(self):\n        self.accel = '{0}'\n"
        known = of(
            {name: text.format(name) for name in ("cuda", "npu", "xpu")},
            run="import torch\nd = torch.device(it.accel)\n",
        )
        assert known.feeds("accel") == set()

    def test_an_accelerator_of_lightning_is_no_device(self) -> None:
        known = of(
            conf='class C:\n    accel: str = "cuda"\n',
            run="from conf import C\ndef f(cfg: C): Trainer(accelerator=cfg.accel)\n",
        )
        assert known.feeds("accel") == {FOREIGN}

    @pytest.mark.parametrize(
        "call",
        [
            "cupy.cuda.Device(cfg.accel)",
            "subprocess.run(['serve', cfg.accel])",
            "os.system(f'serve --on {cfg.accel}')",
        ],
    )
    def test_another_reader(self, call: str) -> None:
        known = of(
            a='class C:\n    accel: str = "cuda"\n',
            b=f"import cupy, os, subprocess\nfrom a import C\ndef f(cfg: C): {call}\n",
        )
        assert known.feeds("accel") == {FOREIGN}
        assert "b.py:3" in known.readers["accel"][0]

    def test_nothing_is_known_of_other_keys(self) -> None:
        assert Knowledge().feeds("device") == set()


class TestConstants:
    def test_through_re_exports_and_modules(self) -> None:
        known = of(
            {
                "pkg/__init__": "from .sub import *\n",
                "pkg/sub/__init__": "from .settings import WHERE as PLACE\n",
                "pkg/sub/settings": 'WHERE = "cuda"\n',
            },
            a="import torch\nfrom pkg import PLACE as P\nd = torch.device(P)\n",
            b="import pkg.sub.settings as s\n\n\nx.to(s.WHERE)\n",
        )
        key = "pkg/sub/settings.py:WHERE"
        assert known.sinks[key] == {DEVICE}
        assert known.seen_from("a.py").constant("P") == key
        assert known.seen_from("b.py").constant("s.WHERE") == key
        assert known.seen_from("a.py").constant("WHERE") is None

    def test_a_name_of_another_module_is_another_constant(self) -> None:
        known = of(
            a='WHERE = "cuda"\n',
            b='WHERE = "cuda"\n',
            c="import torch\nfrom b import WHERE\nd = torch.device(WHERE)\n",
        )
        assert list(known.sinks) == ["b.py:WHERE"]


class TestClasses:
    BATCH = (
        "class Batch:\n    def cuda(self):\n        self.x = self.x.cuda()\n        return self\n"
    )

    def test_owner_users_and_holders(self) -> None:
        (batch,) = own(
            of(
                {
                    "data/batch": BATCH,
                    "data/big": "from .batch import Batch\nclass Big(Batch): pass\n",
                },
                train="from data.big import Big\nsample = Big()\nsample.cuda()\n",
                far="import torch\nx.cuda()\n",
            )
        )
        assert (batch.name, batch.path, batch.is_module) == ("Batch", "data/batch.py", False)
        assert batch.names == {"Batch", "Big"}
        assert batch.users == {"data/batch.py", "train.py"}
        assert {"sample", "batch", "big"} <= batch.holders
        assert "x" not in batch.holders

    def test_a_module_of_torch_through_other_files(self) -> None:
        known = of(
            net="from torch import nn\nclass Net(nn.Module): pass\n",
            odd="from net import Net\nclass Odd(Net):\n    def cuda(self): self.a.cuda()\n",
        )
        assert own(known)[0].is_module

    @pytest.mark.parametrize(
        "body",
        [
            "return super().cuda(device)",
            '"""Text."""\n        return super().cuda(device)',
            "if self.q: raise ValueError\n        return super().cuda(device)",
            "logger.warning('slow')\n        return super().cuda(device)",
        ],
    )
    def test_a_method_that_only_passes_on_is_none_of_its_own(self, body: str) -> None:
        assert own(of(a=f"class A(Module):\n    def cuda(self, device):\n        {body}\n")) == []

    @pytest.mark.parametrize(
        "body",
        [
            "self.a = self.a.cuda()\n        return super().cuda(device)",
            "self.a.cuda()\n        return super().cuda(device)",
            "for m in self.ms: m.cuda()\n        return super().cuda(device)",
            "return self",
        ],
    )
    def test_a_method_that_does_more_is(self, body: str) -> None:
        assert own(of(a=f"class A(Module):\n    def cuda(self, device):\n        {body}\n"))

    @pytest.mark.parametrize("twin", ["npu = cuda", "def npu(self): return self"])
    def test_a_class_with_a_twin_is_no_danger(self, twin: str) -> None:
        assert own(of(a=f"{BATCH}    {twin}\n")) == []

    def test_a_flag_is_no_method(self) -> None:
        known = of(a="class A:\n    @property\n    def cuda(self): return True\n")
        assert own(known) == []

    def test_class_in_a_comment_is_none(self) -> None:
        text = "class A:\n    # this class method\n    x = 1\n    def cuda(self): return 1\n"
        assert glance(text.encode()).owners == {"A"}


class TestReceivers:
    """One odd class must neither be edited away nor forbid every edit."""

    def level(self, text: str) -> str:
        """The fix level of the first finding of ``.cuda()``; empty when there is none."""
        known = of(data=BATCH, a=text).seen_from("a.py")
        findings = rewrite_source(text, OPTIONS, path="a.py", knowledge=known).findings
        return next((f.fix.value for f in findings if f.code == "NPU101"), "")

    @pytest.mark.parametrize(
        ("code", "level"),
        [
            ("def f(x): x.cuda()", "unsafe"),
            ("def f(x: torch.Tensor): x.cuda()", "safe"),
            ("def f(x: 'torch.Tensor | None'): x.cuda()", "safe"),
            ("def f(x: Batch): x.cuda()", ""),
            ("torch.ones(2).cuda()", "safe"),
            ("x = torch.ones(2)\nx = x.float().cuda()", "safe"),
            ("x = load()\nx = x.cuda()", "unsafe"),
            ("x = load() if a else torch.ones(2)\nx.cuda()", "unsafe"),
            ("nn.Linear(2, 2).cuda()", "safe"),
            ("Net().cuda()", "safe"),
            ("Batch().cuda()", ""),
            ("b = Batch()\nb.cuda()", ""),
            ("Batch.from_list(xs).cuda()", ""),
            ("torch.load(f).cuda()", "unsafe"),
            ("def f(x): x.unsqueeze(0).cuda()", "safe"),
            ("def f(x): x[0].cuda()", "unsafe"),
            ("class A:\n    def f(self): self.cuda()", "safe"),
            ("class A(Batch):\n    def f(self): self.cuda()", ""),
            (
                "class A:\n    def __init__(s): self.n = nn.ReLU()\n    def f(self): self.n.cuda()",
                "safe",
            ),
            ("class A:\n    x: torch.Tensor\n    def f(self): self.x.cuda()", "safe"),
        ],
    )
    def test_in_a_file_that_imports_the_class(self, code: str, level: str) -> None:
        assert (
            self.level(f"import torch\nfrom torch import nn\nfrom data import Batch\n{code}\n")
            == level
        )

    @pytest.mark.parametrize(
        ("code", "level"),
        [
            ("def f(x): x.cuda()", "safe"),
            ("def f(batch): batch.cuda()", "unsafe"),
            ("def f(batches): batches[0].cuda()", "unsafe"),
            ("def f(batch: torch.Tensor): batch.cuda()", "safe"),
        ],
    )
    def test_in_a_file_that_does_not(self, code: str, level: str) -> None:
        assert self.level(f"import torch\n{code}\n") == level

    def test_the_finding_names_the_class_and_its_file(self) -> None:
        text = "def f(batch): batch.cuda()\n"
        known = of(data=BATCH, a=text).seen_from("a.py")
        (finding,) = rewrite_source(text, OPTIONS, path="a.py", knowledge=known).findings
        assert "the class Batch in data.py" in finding.message


class TestTheValue:
    def test_is_the_same_in_whatever_order_files_come(self) -> None:
        names = list(FILES)
        expected = of(FILES)
        assert expected.classes
        assert expected.sinks
        assert expected.calls
        for seed in range(5):
            random.Random(seed).shuffle(names)
            assert of({name: FILES[name] for name in names}) == expected

    def test_travels_to_other_processes(self) -> None:
        known = of(FILES)
        assert pickle.loads(pickle.dumps(known)) == known

    def test_files_that_cannot_be_read_or_parsed_say_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text('print "cuda"\nWHERE = "cuda"\n')
        (tmp_path / "b.py").write_bytes(b"# coding: utf-16-odd\nWHERE = 'cuda'\n")
        paths = [str(tmp_path / name) for name in ("a.py", "b.py", "missing.py")]
        assert collect(paths, OPTIONS) == Knowledge()

    def test_a_project_without_such_names_is_not_parsed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cuda2npu.gathering.outline.outline", pytest.fail)
        assert of(a="import torch\nx = torch.ones(2).cuda()\n", b="def f(): pass\n") == Knowledge()


class TestModules:
    MODULES = Modules(["/r/pkg/__init__.py", "/r/pkg/a.py", "/r/other/a.py", "/r/a.py"])

    @pytest.mark.parametrize(
        ("importer", "dotted", "found"),
        [
            ("/r/pkg/a.py", ".a.X", ("/r/pkg/a.py", "X")),
            ("/r/pkg/a.py", ".", ("/r/pkg/__init__.py", "")),
            ("/r/pkg/a.py", "..other.a", ("/r/other/a.py", "")),
            ("/r/main.py", "pkg.a.X", ("/r/pkg/a.py", "X")),
            ("/r/main.py", "pkg.X", ("/r/pkg/__init__.py", "X")),
            ("/r/other/b.py", "a.X", ("/r/other/a.py", "X")),
            ("/elsewhere/b.py", "a.X", None),
            ("/r/main.py", "numpy.array", None),
        ],
    )
    def test_find(self, importer: str, dotted: str, found: tuple[str, str] | None) -> None:
        assert self.MODULES.find(importer, dotted) == found


class TestRoot:
    def test_is_the_nearest_mark(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / "inner/pkg").mkdir(parents=True)
        assert project_root(str(tmp_path / "inner/pkg/a.py")) == tmp_path.resolve()
        (tmp_path / "inner/pyproject.toml").touch()
        assert project_root(str(tmp_path / "inner/pkg/a.py")) == (tmp_path / "inner").resolve()

    def test_is_never_the_home_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / "scratch").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        assert project_root(str(tmp_path / "scratch/a.py")) is None


def test_an_outline_tells_what_a_file_says() -> None:
    said = outline('import torch\nfrom a import *\nWHERE = "cuda"\nd = torch.device(WHERE)\n')
    assert ("*", "a") in said.imports
    assert [(d.name, d.is_device) for d in said.definitions] == [("WHERE", True)]
    assert [(r.name, r.kind, r.line) for r in said.readings] == [("WHERE", DEVICE, 4)]


PARSER = 'import argparse\np.add_argument("--device", default="cuda")\n'
READER = "import torch\nx = torch.zeros(1, device=args.device)\n"


class TestPrograms:
    def test_the_file_that_defines_the_option(self) -> None:
        known = of(train=PARSER + READER, other="print(1)\n")
        assert known.takes("train", "--device", DEVICE)
        assert not known.takes("other", "--device", DEVICE)
        assert not known.takes("rain", "--device", DEVICE)
        assert not known.takes("train", "--device", BACKEND)
        assert not known.takes("train", "--dist-backend", DEVICE)

    def test_the_file_that_imports_its_parser(self) -> None:
        known = of(
            {"pkg/options": PARSER + READER, "pkg/__main__": "from .options import parse\n"},
            far="import pkg.__main__\n",
        )
        assert known.takes("pkg", "--device", DEVICE)
        assert not known.takes("far", "--device", DEVICE)

    def test_a_parser_apart_from_the_reader(self) -> None:
        known = of(options=PARSER, train="from options import p\n" + READER)
        assert known.takes("train", "--device", DEVICE)

    def test_a_parser_that_adds(self) -> None:
        known = of(options=PARSER.replace("add_argument", "add"), train="import options\n" + READER)
        assert known.takes("train", "--device", DEVICE)

    def test_a_parser_in_the_package_itself(self) -> None:
        known = of({"pkg/__init__": PARSER, "pkg/train": "from . import p\n" + READER})
        assert known.takes("pkg/train", "--device", DEVICE)

    @pytest.mark.parametrize("call", ["HfArgumentParser((Args, Others))", "tyro.cli(Args)"])
    def test_the_fields_of_a_dataclass(self, call: str) -> None:
        fields = '@dataclass(frozen=True)\nclass Args:\n    device: str = "cuda"\n'
        parser = f"import torch\nargs = {call}\n"
        known = of(train=fields + parser + READER, other=fields + READER)
        assert known.takes("train", "--device", DEVICE)
        assert not known.takes("other", "--device", DEVICE)
        apart = of(arguments=fields, model=READER, train=f"from arguments import Args\n{parser}")
        assert apart.takes("train", "--device", DEVICE)
        assert not apart.takes("arguments", "--device", DEVICE)

    def test_two_files_of_one_name_must_both_take_it(self) -> None:
        known = of({"a/train": PARSER + READER, "b/train": "print(1)\n"})
        assert known.takes("a/train", "--device", DEVICE)
        assert not known.takes("train", "--device", DEVICE)

    def test_an_option_that_nothing_reads(self) -> None:
        assert not of(train=PARSER).takes("train", "--device", DEVICE)


class TestStarImports:
    @pytest.mark.parametrize(
        ("settings", "kinds"),
        [
            ('LINK = "nccl"\n', {BACKEND}),
            ('__all__ = ["LINK"]\nLINK = "nccl"\n', {BACKEND}),
            ('__all__ = ["OTHER"]\nLINK = "nccl"\nOTHER = 1\n', None),
        ],
    )
    def test_what_one_brings(self, settings: str, kinds: set[str] | None) -> None:
        known = of(
            settings=settings,
            train="import torch.distributed as dist\nfrom settings import *\n"
            "def main():\n    dist.init_process_group(LINK)\n",
        )
        assert known.sinks.get("settings.py:LINK") == kinds
        key = known.seen_from("train.py").constant("LINK")
        assert key == ("settings.py:LINK" if kinds else None)

    def test_a_name_of_the_file_itself(self) -> None:
        known = of(
            settings='LINK = "nccl"\n',
            train="import torch.distributed as dist\nfrom settings import *\n"
            "def main():\n    LINK = read()\n    dist.init_process_group(LINK)\n",
        )
        assert "settings.py:LINK" not in known.sinks


class TestFiles:
    def test_those_that_the_code_names(self) -> None:
        known = of(a='import torch\nc = load("conf/c.json")\nd = torch.device(c["target"])\n')
        assert known.feeds("target") == {DEVICE}
        assert known.names_file("/home/x/conf/c.json")
        assert not known.names_file("/home/x/docs/c.json")


class TestListsOfDevices:
    @pytest.mark.parametrize(
        ("test", "kinds"),
        [
            ("device not in KNOWN", {DEVICE}),
            ("x.device.type in KNOWN", {DEVICE}),
            ("dev.lower() in KNOWN", {DEVICE}),
            ("impl in KNOWN", None),
        ],
    )
    def test_what_is_looked_up_in_one(self, test: str, kinds: set[str] | None) -> None:
        known = of(
            settings='KNOWN = ("cpu", "cuda")\n',
            a=f"from settings import KNOWN\ndef f(device, dev, impl, x): return {test}\n",
        )
        assert known.sinks.get("settings.py:KNOWN") == kinds

    def test_other_things_beside(self) -> None:
        known = of(
            settings='KNOWN = ("fast", "cuda")\n',
            a="from settings import KNOWN\ndef f(device): return device in KNOWN\n",
        )
        assert "settings.py:KNOWN" not in known.sinks

    def test_it_moves(self) -> None:
        text = 'KNOWN = ("cpu", "cuda")\n'
        known = of(
            settings=text,
            a="from settings import KNOWN\ndef f(dev): return dev in KNOWN\n",
        ).seen_from("settings.py")
        after = rewrite_source(text, OPTIONS, path="settings.py", knowledge=known).text
        assert after == 'KNOWN = ("cpu", "npu")\n'

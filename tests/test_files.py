from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from repository import git

from cuda2npu import files, writing
from cuda2npu.exclude import Exclude
from cuda2npu.model import UsageError
from cuda2npu.writing import WriteError


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")


def found(*paths: Path, exclude: Exclude | None = None) -> list[str]:
    plan = files.discover(map(str, paths), exclude or Exclude())
    return [job.path for job in plan.jobs]


def below(root: Path, *paths: Path, exclude: Exclude | None = None) -> list[str]:
    return [Path(name).relative_to(root).as_posix() for name in found(*paths, exclude=exclude)]


class TestDiscover:
    def test_folder_gives_known_files_in_order(self, tmp_path: Path) -> None:
        make(tmp_path, "b.py", "a.py", "sub/c.pyi", "sub/d.txt", "z.ipynb")
        assert below(tmp_path, tmp_path) == ["a.py", "b.py", "sub/c.pyi", "z.ipynb"]

    def test_scripts_without_a_suffix(self, tmp_path: Path) -> None:
        make(tmp_path, "README", "bin/notes")
        scripts = {
            "train": b"#!/usr/bin/env python3\n",
            "launch": b"#!/bin/bash\n",
            "other": b"#!/usr/bin/perl\n",
            "binary": b"\x7fELF\0",
            "empty": b"",
            "named.txt": b"#!/bin/bash\n",
        }
        for name, data in scripts.items():
            (tmp_path / "bin" / name).write_bytes(data)
        (tmp_path / "bin" / "nowhere").symlink_to("nix")
        os.mkfifo(tmp_path / "bin" / "pipe")
        plan = files.discover([str(tmp_path)], Exclude())
        found = [Path(job.path).name for job in plan.jobs]
        assert (found, plan.errors) == (["launch", "train"], [])

    def test_a_script_that_cannot_be_opened_is_no_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(tmp_path, "a.py", "secret")

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
        plan = files.discover([str(tmp_path)], Exclude())
        assert [Path(job.path).name for job in plan.jobs] == ["a.py"]
        assert plan.errors == []

    def test_default_excludes(self, tmp_path: Path) -> None:
        make(
            tmp_path, "a.py", ".venv/x.py", "build/x.py", "sub/__pycache__/x.py", "y.egg-info/x.py"
        )
        make(tmp_path, "lib/site-packages/x.py", "node_modules/x.py", "rebuild/x.py", "build.py")
        assert below(tmp_path, tmp_path) == ["a.py", "build.py", "rebuild/x.py"]

    def test_named_excluded_folder_is_taken(self, tmp_path: Path) -> None:
        make(tmp_path, "build/x.py")
        assert below(tmp_path, tmp_path / "build") == ["build/x.py"]

    def test_named_file_is_taken_whatever_its_name(self, tmp_path: Path) -> None:
        make(tmp_path, "train", "venv/x.txt")
        paths = (tmp_path / "train", tmp_path / "venv/x.txt")
        assert below(tmp_path, *paths, exclude=Exclude(["x"])) == ["train", "venv/x.txt"]

    @pytest.mark.parametrize(
        ("pattern", "based", "expected"),
        [
            ("b.py", True, ["a.py"]),
            ("gen/", True, ["a.py"]),
            ("src/gen", True, ["a.py"]),
            ("gen/b.py", True, ["a.py", "src/gen/b.py"]),
            ("*.py", False, []),
            ("src/gen/", False, ["a.py"]),
        ],
    )
    def test_named_file_that_is_excluded(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        pattern: str,
        based: bool,
        expected: list[str],
    ) -> None:
        make(tmp_path, "a.py", "src/gen/b.py")
        monkeypatch.chdir(tmp_path)
        exclude = Exclude([pattern], base=tmp_path if based else None)
        plan = files.discover(["a.py", "src/gen/b.py"], exclude)
        assert [job.path for job in plan.jobs] == expected
        assert len(plan.excluded) == 2 - len(expected)

    def test_forced_excludes_hold_for_named_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "src").mkdir()
        git("init", "-q", cwd=tmp_path)
        git("init", "-q", cwd=tmp_path / "src")
        names = ("a.py", "build/b.py", "c_pb2.py", "venv/d.py", "ours/build/e.py", "README", "f.md")
        make(tmp_path, *names, "src/g.py", "mine/h.py", "requirements/dev.txt")
        named = [*names, "src/g.py", "mine/h.py", "requirements/dev.txt", "nix.py"]
        patterns = ["!ours/build/", "mine/"]
        plan = files.discover(named, Exclude(patterns, base=tmp_path, force=True))
        assert [job.path for job in plan.jobs] == [
            "a.py",
            "ours/build/e.py",
            "requirements/dev.txt",
        ]
        assert not any(job.meant for job in plan.jobs)
        assert plan.left_out == {"build/": 1, "*_pb2.py": 1, "src/": 1}
        assert plan.excluded == ["venv/d.py", "mine/h.py"]
        assert [error.path for error in plan.errors] == ["nix.py"]
        elsewhere = files.discover(named, Exclude(base=tmp_path / "mine", force=True))
        assert set(elsewhere.left_out) == {"build/", "*_pb2.py", "ours/build/", "src/"}
        by_hand = files.discover(named, Exclude(patterns, base=tmp_path))
        assert {"build/b.py", "c_pb2.py", "venv/d.py", "src/g.py"} < {j.path for j in by_hand.jobs}

    def test_each_file_once(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py", "sub/b.py")
        paths = (tmp_path / "sub/b.py", tmp_path, tmp_path / "sub/../a.py")
        assert below(tmp_path, *paths) == ["sub/b.py", "a.py"]

    def test_missing_paths_are_each_named(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py")
        names = [str(tmp_path / name) for name in ("nix.py", "a.py", "a.py/b")]
        plan = files.discover([*names, ""], Exclude())
        assert [job.path for job in plan.jobs] == [names[1]]
        assert [error.path for error in plan.errors] == [names[0], names[2], '""']
        assert plan.errors[0].message == plan.errors[1].message == "no such file or folder"

    @pytest.mark.parametrize(
        ("name", "text", "fault"),
        [
            ("a.pyw", "x = 1", ""),
            ("run", "#!/usr/bin/env python3\nbroken(", ""),
            ("run", "x = 1", ""),
            ("a.ipynb", "{}", ""),
            ("a.json", "{}", ""),
            ("a.yaml", "device: cuda", ""),
            ("package-lock.json", "{}", "is of no kind that is read"),
            ("a.csv", "1", "is of no kind that is read"),
            ("a.txt", "no source at all", "is of no kind that is read"),
            ("a.bin", "\0", "is of no kind that is read"),
        ],
    )
    def test_named_kinds(self, tmp_path: Path, name: str, text: str, fault: str) -> None:
        (tmp_path / name).write_text(text)
        plan = files.discover([str(tmp_path / name)], Exclude())
        assert len(plan.jobs) == (not fault)
        assert all(fault in error.message for error in plan.errors)

    def test_dot_does_not_lead_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make(tmp_path, "a.py")
        monkeypatch.chdir(tmp_path)
        assert found(Path()) == ["a.py"]

    def test_links_to_folders_are_not_followed(self, tmp_path: Path) -> None:
        make(tmp_path, "in/a.py", "out/b.py")
        (tmp_path / "in/link").symlink_to(tmp_path / "out")
        (tmp_path / "in/loop").symlink_to(tmp_path / "in")
        assert below(tmp_path, tmp_path / "in") == ["in/a.py"]

    def test_a_file_goes_by_its_own_name_not_by_its_links(self, tmp_path: Path) -> None:
        make(tmp_path, "b.py", "model.txt")
        (tmp_path / "a.py").symlink_to("b.py")
        (tmp_path / "c.py").symlink_to("model.txt")
        (tmp_path / "d.py").symlink_to("c.py")
        assert below(tmp_path, tmp_path) == ["b.py", "c.py"]

    def test_broken_and_circular_links_and_pipes_are_passed_over(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py")
        (tmp_path / "b.py").symlink_to("nowhere.py")
        (tmp_path / "c.py").symlink_to("c.py")
        os.mkfifo(tmp_path / "d.py")
        assert below(tmp_path, tmp_path) == ["a.py"]

    def test_unreadable_folder_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(tmp_path, "a.py", "locked/b.py")
        scandir = os.scandir

        def refuse(path: Path) -> object:
            if Path(path).name == "locked":
                raise PermissionError(13, "Permission denied")
            return scandir(path)

        monkeypatch.setattr("os.scandir", refuse)
        plan = files.discover([str(tmp_path)], Exclude())
        assert [Path(job.path).name for job in plan.jobs] == ["a.py"]
        assert [error.message for error in plan.errors] == ["cannot be read: Permission denied"]


class TestExclude:
    @pytest.mark.parametrize(
        ("pattern", "path", "folder", "expected"),
        [
            ("gen", "gen", False, True),
            ("gen", "a/gen", True, True),
            ("gen/", "a/gen", False, False),
            ("gen/", "a/gen", True, True),
            ("/gen", "a/gen", True, False),
            ("/gen", "gen", True, True),
            ("./gen", "gen", True, True),
            ("a/gen", "a/gen", True, True),
            ("a/gen", "b/a/gen", True, False),
            ("*_pb2.py", "x/y_pb2.py", False, True),
            ("a/*.py", "a/b/c.py", False, False),
            ("a/**/c.py", "a/b/b/c.py", False, True),
            ("a/**/c.py", "a/c.py", False, True),
            ("**/c.py", "c.py", False, True),
            ("a/**", "a/b/c.py", False, True),
            ("a/**", "a", True, False),
            ("v?.py", "v1.py", False, True),
            ("v[0-9].py", "v1.py", False, True),
            ("v[!0-9].py", "v1.py", False, False),
            (r"\!x.py", "!x.py", False, True),
            ("a.py", "axpy", False, False),
            ("# comment", "# comment", False, False),
            (r"v\[", "v[", False, True),
        ],
    )
    def test_patterns(self, pattern: str, path: str, folder: bool, expected: bool) -> None:
        assert Exclude([pattern]).matches(path, folder=folder) is expected

    def test_the_last_match_decides(self) -> None:
        exclude = Exclude(["*.py", "!keep.py", "!build/"])
        assert exclude.matches("a.py", folder=False)
        assert not exclude.matches("keep.py", folder=False)
        assert not exclude.matches("build", folder=True)

    def test_an_excluded_folder_is_not_searched(self, tmp_path: Path) -> None:
        make(tmp_path, "a/gen/x.py", "a/y.py")
        assert below(tmp_path, tmp_path, exclude=Exclude(["a/gen"])) == ["a/y.py"]

    def test_patterns_of_a_settings_file_are_anchored_at_its_folder(self, tmp_path: Path) -> None:
        make(tmp_path, "src/gen/x.py", "src/y.py")
        exclude = Exclude(["src/gen"], base=tmp_path)
        assert below(tmp_path, tmp_path / "src", exclude=exclude) == ["src/y.py"]

    @pytest.mark.parametrize("pattern", ["[z-a]", "[", "v["])
    def test_bad_pattern(self, pattern: str) -> None:
        with pytest.raises(UsageError, match="exclude pattern"):
            Exclude([pattern])


class TestReplaceFile:
    def test_keeps_the_mode_and_leaves_no_other_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a.py"
        path.write_bytes(b"old")
        path.chmod(0o754)
        writing.replace_file(str(path), b"new", expected=b"old", root=str(tmp_path))
        assert path.read_bytes() == b"new"
        assert stat.S_IMODE(path.stat().st_mode) == 0o754
        assert list(tmp_path.iterdir()) == [path]

    def test_a_link_inside_is_written_through(self, tmp_path: Path) -> None:
        make(tmp_path, "sub/real.txt")
        link = tmp_path / "a.py"
        link.symlink_to("sub/real.txt")
        expected = link.read_bytes()
        writing.replace_file(str(link), b"new", expected=expected, root=str(tmp_path.resolve()))
        assert link.is_symlink()
        assert (tmp_path / "sub/real.txt").read_bytes() == b"new"

    def test_a_link_to_outside_is_left(self, tmp_path: Path) -> None:
        make(tmp_path, "in/x.py", "out/real.py")
        link = tmp_path / "in/a.py"
        link.symlink_to("../out/real.py")
        root = str((tmp_path / "in").resolve())
        with pytest.raises(WriteError, match=r"is a link to .*real\.py, which is outside"):
            writing.replace_file(str(link), b"new", expected=link.read_bytes(), root=root)
        assert (tmp_path / "out/real.py").read_text() == "# out/real.py\n"

    def test_a_file_that_changed_meanwhile_is_left(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py")
        with pytest.raises(WriteError, match="changed by another program"):
            writing.replace_file(str(tmp_path / "a.py"), b"new", expected=b"x", root=str(tmp_path))

    def test_a_file_that_is_new_already_is_done(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py")
        data = (tmp_path / "a.py").read_bytes()
        writing.replace_file(str(tmp_path / "a.py"), data, expected=b"old", root=str(tmp_path))

    @pytest.mark.parametrize("locked", ["a.py", "."])
    def test_read_only(self, tmp_path: Path, locked: str, monkeypatch: pytest.MonkeyPatch) -> None:
        make(tmp_path, "a.py")
        real = (tmp_path / locked).resolve()
        monkeypatch.setattr("os.access", lambda path, mode: Path(path).resolve() != real)
        expected = (tmp_path / "a.py").read_bytes()
        with pytest.raises(WriteError, match="read-only"):
            writing.replace_file(
                str(tmp_path / "a.py"), b"new", expected=expected, root=str(tmp_path)
            )

    def test_a_full_disk_leaves_the_old_file_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "a.py"
        path.write_bytes(b"old")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(WriteError, match=r"No space left on device\. Left as it was"):
            writing.replace_file(str(path), b"new", expected=b"old", root=str(tmp_path))
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


class TestPlanOutput:
    def test_python_is_converted_and_the_rest_copied(self, tmp_path: Path) -> None:
        make(tmp_path, "in/a.py", "in/data/x.bin", "in/.git/config", "in/build/b.py")
        out = tmp_path / "out"
        plan = files.plan_output([str(tmp_path / "in")], Exclude(), out)
        assert [job.output for job in plan.jobs] == [str(out / "a.py")]
        copies = [str(out / "build/b.py"), str(out / "data/x.bin")]
        assert [copy.output for copy in plan.copies] == copies

    def test_an_output_inside_its_input_is_not_copied_into_itself(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py", "out/a.py", "out/b.txt")
        plan = files.plan_output([str(tmp_path)], Exclude(), tmp_path / "out")
        assert len(plan.jobs) == 1
        assert plan.copies == []

    def test_the_same_file_twice_is_once(self, tmp_path: Path) -> None:
        make(tmp_path, "in/a.py")
        paths = [str(tmp_path / "in"), str(tmp_path / "in/a.py")]
        assert len(files.plan_output(paths, Exclude(), tmp_path / "out").jobs) == 1

    def test_two_files_for_one_place(self, tmp_path: Path) -> None:
        make(tmp_path, "x/a.py", "y/a.py")
        with pytest.raises(UsageError, match="would both be written to"):
            files.plan_output([str(tmp_path / "x"), str(tmp_path / "y")], Exclude(), tmp_path / "o")

    def test_a_file_where_another_needs_a_folder(self, tmp_path: Path) -> None:
        make(tmp_path, "x/a", "y/a/b.py")
        with pytest.raises(UsageError, match="both a file and a folder"):
            files.plan_output([str(tmp_path / "x"), str(tmp_path / "y")], Exclude(), tmp_path / "o")

    def test_the_input_is_never_the_output(self, tmp_path: Path) -> None:
        make(tmp_path, "a.py")
        with pytest.raises(UsageError, match="is the folder that is converted"):
            files.plan_output([str(tmp_path)], Exclude(), tmp_path)
        with pytest.raises(UsageError, match="one of the files to convert"):
            files.plan_output([str(tmp_path / "a.py")], Exclude(), tmp_path)


class TestCopies:
    def copy(self, source: Path, output: Path) -> None:
        writing.copy_file(files.Copy(str(source), str(output / source.name), str(output)))

    def test_a_link_stays_a_link_and_a_mode_a_mode(self, tmp_path: Path) -> None:
        make(tmp_path, "in/run.sh")
        (tmp_path / "in/run.sh").chmod(0o755)
        (tmp_path / "in/link").symlink_to("../elsewhere")
        self.copy(tmp_path / "in/run.sh", tmp_path / "out")
        self.copy(tmp_path / "in/link", tmp_path / "out")
        assert stat.S_IMODE((tmp_path / "out/run.sh").stat().st_mode) == 0o755
        assert (tmp_path / "out/link").readlink() == Path("../elsewhere")

    def test_a_link_in_the_output_is_replaced_not_followed(self, tmp_path: Path) -> None:
        make(tmp_path, "in/a.txt", "victim.txt", "out/x")
        (tmp_path / "out/a.txt").symlink_to(tmp_path / "victim.txt")
        self.copy(tmp_path / "in/a.txt", tmp_path / "out")
        assert (tmp_path / "victim.txt").read_text() == "# victim.txt\n"
        assert (tmp_path / "out/a.txt").read_text() == "# in/a.txt\n"

    def test_a_linked_folder_in_the_output_does_not_lead_out(self, tmp_path: Path) -> None:
        make(tmp_path, "in/a.py", "victim/x.txt", "out/x")
        (tmp_path / "out/sub").symlink_to(tmp_path / "victim")
        output = str(tmp_path / "out/sub/a.py")
        with pytest.raises(WriteError, match="leads outside"):
            writing.write_copy(str(tmp_path / "in/a.py"), output, b"new", str(tmp_path / "out"))
        assert not (tmp_path / "victim/a.py").exists()

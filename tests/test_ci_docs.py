"""The files and commands of docs/ci.md, as a reader copies them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository import ENVIRONMENT, commit_all, git
from test_cli import CUDA

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
HOOK_CONFIG, WORKFLOW = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
JOBS: dict[str, Any] = yaml.safe_load(WORKFLOW)["jobs"]
LOCAL_HOOK = {
    "id": "cuda2npu",
    "name": "check",
    "entry": "cuda2npu check",
    "language": "system",
    "types": ["python"],
}


def bash(command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command as GitHub does, with the tools of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
        cwd=cwd,
        env=ENVIRONMENT | {"PATH": path, "CUDA2NPU": "cuda2npu"} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def commands(job: str) -> list[str]:
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A branch with one finding more than origin/main."""
    (tmp_path / "old.py").write_text(CUDA)
    commit_all(tmp_path)
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=tmp_path)
    (tmp_path / "new.py").write_text(CUDA)
    commit_all(tmp_path)
    return tmp_path


def test_the_workflow_is_one() -> None:
    workflow = yaml.safe_load(WORKFLOW)
    assert workflow[True] == {"push": {"branches": ["main"]}, "pull_request": None}  # "on" in YAML
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
    for job in JOBS.values():
        assert job["runs-on"] == "ubuntu-latest"
        for step in job["steps"]:
            assert ("run" in step) != bool(
                re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step.get("uses", ""))
            )


def test_a_pull_request_gets_its_own_findings(project: Path) -> None:
    install, check = commands("pull-request")
    assert bash(install, project).returncode == 0
    done = bash(check, project, GITHUB_BASE_REF="main", GITHUB_WORKSPACE=str(project))
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("::warning file=new.py,line=3,")


def test_code_scanning_gets_a_log_and_fails_only_for_errors(project: Path) -> None:
    *_, check = commands("code-scanning")
    assert bash(check, project).returncode == 0
    upload = JOBS["code-scanning"]["steps"][-1]
    log = json.loads((project / upload["with"]["sarif_file"]).read_text())
    assert len(log["runs"][0]["results"]) == 2
    (project / "new.py").write_text("import torch\nprint 'cuda'\n")
    assert bash(check, project).returncode == 1


def test_the_hooks_run_on_everything(project: Path) -> None:
    config = yaml.safe_load(HOOK_CONFIG)
    file = project / ".pre-commit-config.yaml"
    file.write_text(HOOK_CONFIG)
    assert bash("pre-commit validate-config", project).returncode == 0
    known = [hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())]
    assert all(hook["id"] in known for repo in config["repos"] for hook in repo["hooks"])
    file.write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": [LOCAL_HOOK]}]}))
    install, hooks = commands("hooks")
    assert bash(install, project).returncode == 0
    done = bash(hooks, project, PRE_COMMIT_HOME=str(project / ".git" / "cache"))
    assert done.returncode == 1
    assert "2 findings in 2 files" in done.stdout


def test_the_commands_about_a_baseline(project: Path) -> None:
    block = next(b for b in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) if "baseline" in b)
    ran = [bash(line[2:], project) for line in block.splitlines() if line.startswith("$ ")]
    assert [done.returncode for done in ran] == [0, 0, 0]
    assert ran[-1].stderr == "No findings, 2 files looked at.\n"
    assert git("diff", "--cached", "--name-only", cwd=project) == ".cuda2npu-baseline.json"

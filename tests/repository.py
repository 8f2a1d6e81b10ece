"""Git repositories for tests, untouched by the configuration of whoever runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_ALLOW_PROTOCOL": "file",
}


def git(*arguments: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        ["git", *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit_all(folder: Path) -> str:
    """Commit everything in a folder, a repository from now on; the commit."""
    git("init", "-q", "-b", "main", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "all", cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder)

"""Writes what the published torch_npu wheels say goes together, under ``src/cuda2npu/doctor``.

    python tools/compatibility.py          asks pip about every release, about five minutes

``wheels.tsv`` is written anew: for each wheel of ``extract_names.WHEELS`` the torch that its
metadata requires, the Pythons and machines that have a wheel, and its other requirements.
``pairs.tsv`` gets the rows of the table of CANN versions in the wheels' READMEs; rows whose source
is not a wheel were copied by hand from the pages that its first lines name, and stay. pip reads
the metadata; nothing is installed, and nothing of a wheel is run.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from extract_names import WHEELS

DATA = Path(__file__).parent.parent / "src" / "cuda2npu" / "doctor"
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
FROM_WHEELS = "wheel "
"""How the source of a row that this script wrote begins."""


def metadata(version: str, python: str, machine: str) -> dict[str, Any] | None:
    """The metadata of one wheel; None where there is none for that Python and machine."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
    command += ["--ignore-installed", "--only-binary=:all:", "--target", "unused"]
    command += ["--report", "-", "--python-version", python]
    for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
        command += ["--platform", f"{name}_{machine}"]
    done = subprocess.run(
        [*command, f"torch-npu=={version}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None
    found: dict[str, Any] = json.loads(done.stdout)["install"][0]["metadata"]
    return found


def wheel_row(version: str, found: dict[str, Any], pythons: dict[str, list[str]]) -> str:
    """A row of ``wheels.tsv``."""
    required = [re.split(r"[\s(=<>!~;]", one)[0] for one in found.get("requires_dist", [])]
    torch = next(
        (one for one in found.get("requires_dist", []) if re.match(r"torch\b", one)), "torch"
    )
    others = " ".join(name for name in required if name != "torch")
    pin = re.sub(r"torch|[\s()=]|\.\*", "", torch)
    return "\t".join([version, pin, *(" ".join(pythons[m]) for m in MACHINES), others])


def pair_rows(version: str, readme: str) -> Iterator[tuple[str, ...]]:
    """The rows of a README's table: CANN, PyTorch, package, branch, the first cell often empty."""
    cann = ""
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or not re.match(r"v?2\.\d", cells[3]):
            continue
        cann = cells[0].removeprefix("CANN ").strip() or cann
        product = cells[3].partition("-")[2]
        if not product or not re.fullmatch(r"2[\d.]+(?:\.(?:post|rc)\d+)?", cells[2]):
            continue  # the branch of a release to come; a note beside the version
        # One README repeats the product's version where that of CANN belongs.
        stated = "" if cann == product else cann
        yield cells[2].replace(".rc", "rc"), product, stated, f"{FROM_WHEELS}{version}"


def write(name: str, rows: list[str]) -> None:
    """Replace the rows of a table; of the lines above them only the date changes."""
    path = DATA / name
    head = []
    for line in path.read_text(encoding="utf-8").splitlines():
        head.append(re.sub(r"\d{4}-\d\d-\d\d", datetime.date.today().isoformat(), line))
        if not line.startswith("#"):
            break
    path.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")


def kept_pairs() -> dict[str, str]:
    """The rows of ``pairs.tsv`` that come from elsewhere, by the package they are about."""
    lines = (DATA / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if not line.startswith("#")][1:]
    return {
        row.split("\t")[0]: row for row in rows if not row.split("\t")[3].startswith(FROM_WHEELS)
    }


def main() -> None:
    """The command line."""
    wheels: list[str] = []
    pairs = kept_pairs()
    for version in reversed(WHEELS.values()):
        pythons: dict[str, list[str]] = {machine: [] for machine in MACHINES}
        found = None
        for machine in MACHINES:
            for python in PYTHONS:
                one = metadata(version, python, machine)
                if one is not None:
                    pythons[machine].append(python)
                    found = found or one
        if found is None:
            sys.exit(f"torch-npu {version}: pip finds no wheel; is the index reachable?")
        wheels.append(wheel_row(version, found, pythons))
        for row in pair_rows(version, found.get("description", "")):
            pairs.setdefault(row[0], "\t".join(row))
        print(wheels[-1])
    write("wheels.tsv", wheels)
    write("pairs.tsv", sorted(pairs.values(), key=_order, reverse=True))


def _order(row: str) -> list[int]:
    package = row.split("\t")[0].replace("rc", "-1.").replace("post", "")
    return [int(part) for part in re.findall(r"-?\d+", package)]


if __name__ == "__main__":
    main()

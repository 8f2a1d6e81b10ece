"""Doctor's readings of files and outputs, and what it makes of them."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest
from doctor_machines import FIXTURES, cann_of, program, recorded, root, sourced

import cuda2npu.doctor
from cuda2npu.doctor import ascend, devices, environment, software, table, usage, versions
from cuda2npu.doctor.attempt import UNAVAILABLE, Attempt
from cuda2npu.doctor.check import Check, Status
from cuda2npu.doctor.examine import Diagnosis
from cuda2npu.doctor.failures import Advice, cause_of, cpu_torch
from cuda2npu.doctor.machine import Machine, Ran
from cuda2npu.doctor.packages import Packages
from cuda2npu.doctor.report import as_json
from cuda2npu.doctor.smi import Chip, Process, parse
from cuda2npu.releases import RELEASES

SOURCE = Path(cuda2npu.doctor.__file__).parent


# --- the tables -------------------------------------------------------------------------------


def test_each_known_release_has_a_wheel_and_a_product() -> None:
    wheels = {wheel.torch_npu: wheel for wheel in table.wheels()}
    named = {wheel.torch for wheel in wheels.values()}
    assert {torch.partition("+")[0] for torch in named} == set(RELEASES)
    for version, wheel in wheels.items():
        assert wheel.x86_64
        assert wheel.aarch64
        assert table.numbers(version) == table.numbers(wheel.torch)


@pytest.mark.parametrize("name", ["pairs.tsv", "ranges.tsv", "wheels.tsv"])
def test_a_table_says_where_and_when(name: str) -> None:
    head = [x for x in (SOURCE / name).read_text().splitlines() if x.startswith("#")]
    assert re.search(r"20\d\d-\d\d-\d\d", "\n".join(head))


def test_pairs_are_single_and_well_formed() -> None:
    pairs = table.pairs()
    assert len({pair.torch_npu for pair in pairs}) == len(pairs) > 40
    for pair in pairs:
        assert re.fullmatch(r"2\.\d+\.\d+(\.post\d+|rc\d+)?", pair.torch_npu)
        assert re.fullmatch(r"(\d+\.\d+\.(\d+|X|RC\d))?", pair.cann)
        assert re.fullmatch(r"wheel 2\.\S+|release notes 26\.2\.0|COMPATIBILITY\.md", pair.source)


@pytest.mark.parametrize(
    ("torch_npu", "cann", "pair", "compatible"),
    [
        ("2.8.0", "8.3.RC1", True, True),
        ("2.8.0", "8.3.RC2", True, False),  # the release notes name RC1
        ("2.8.0", "8.2.RC1", False, True),
        ("2.8.0", "8.5.0", False, False),
        ("2.13.0", "9.2.0", True, True),
        ("2.13.0", "8.5.1", False, True),
        ("2.12.0.post2", "9.1.3", True, True),
        ("2.9.1", "9.0.0", False, True),  # its README names no CANN, only the product 26.0.0
        ("2.4.0.post2", "8.0.RC3.beta1", True, True),
    ],
)
def test_what_goes_together(torch_npu: str, cann: str, pair: bool, compatible: bool) -> None:
    found = ascend.pair_of(torch_npu)
    assert found is not None
    assert table.is_pair(found, cann) is pair
    assert table.is_compatible(found, cann) is compatible


def test_how_a_wheel_is_read() -> None:
    sys.path.append(str(SOURCE.parents[2] / "tools"))
    from compatibility import pair_rows, wheel_row

    readme = """
| CANN Version | Supported PyTorch Version | Supported Extension Version | Github Branch |
|--------------|---------------------------|-----------------------------|---------------|
| CANN 26.0.0  | 2.9.1                     | 2.9.1                       | v2.9.1-26.0.0 |
| CANN 8.5.0   | 2.10.0                    | 2.10.0rc2                   | v2.10.0       |
|              | 2.7.1                     | 2.7.1.post2                 | v2.7.1-7.3.0  |
| CANN 7.0.RC1 | 2.1.0                     | 2.1.0.rc1                   | v2.1.0-5.0.rc3|
| CANN 6.0.1   | 1.8.1                     | 1.8.1                       | v1.8.1-3.0.0  |
"""
    assert list(pair_rows("2.9.1", readme)) == [
        ("2.9.1", "26.0.0", "", "wheel 2.9.1"),
        ("2.7.1.post2", "7.3.0", "8.5.0", "wheel 2.9.1"),
        ("2.1.0rc1", "5.0.rc3", "7.0.RC1", "wheel 2.9.1"),
    ]
    pythons = {"x86_64": ["3.10", "3.11"], "aarch64": ["3.11"]}
    found = {"requires_dist": ["torch (==2.1.0+cpu)", "numpy", "pyyaml>=5"]}
    assert wheel_row("2.1.0.post17", found, pythons).split("\t") == [
        "2.1.0.post17",
        "2.1.0+cpu",
        "3.10 3.11",
        "3.11",
        "numpy pyyaml",
    ]
    assert wheel_row("2.14.0", {"requires_dist": ["torch==2.14.0.*"]}, pythons).split("\t")[1] == (
        "2.14.0"
    )


# --- npu-smi ----------------------------------------------------------------------------------


def test_a_card_with_one_chip() -> None:
    listing = parse(recorded("910b"))
    assert listing.version == "25.3.rc1"
    assert listing.chips == (
        Chip(0, 0, "910B2", "OK", 3391, 65536),
        Chip(1, 0, "910B2", "OK", 52310, 65536),
    )
    assert listing.processes == (Process(1, 0, 40127, "python", 48961),)


def test_cards_with_two_chips() -> None:
    listing = parse(recorded("910_93"))
    assert [(c.npu, c.chip, c.name) for c in listing.chips] == [
        (npu, chip, "Ascend910") for npu in (0, 1) for chip in (0, 1)
    ]
    assert listing.chips[2].used == 50102
    assert [(p.npu, p.chip, p.pid, p.name) for p in listing.processes] == [
        (1, 0, 2201, ""),
        (1, 0, 2202, ""),
        (1, 1, 2202, ""),
    ]


def test_chips_without_hbm_and_cards_with_odd_numbers() -> None:
    listing = parse(recorded("310p"))
    assert [(c.npu, c.chip, c.used, c.total) for c in listing.chips] == [
        (1, 0, 1448, 44278),
        (1, 1, 1511, 43693),
        (32768, 0, 19562, 21527),
    ]
    assert listing.processes == (Process(32768, 0, 771, "main", 17650),)


@pytest.mark.parametrize("name", ["none", "no-answer", "held", "no-library"])
def test_outputs_without_chips(name: str) -> None:
    assert parse(recorded(name)).chips == ()


def _smi(
    tmp_path: Path, printed: str, code: int = 0, *, visible: tuple[int, ...] | None = None
) -> list[Check]:
    program(tmp_path / "bin", printed, code)
    return list(devices.look(_with_smi(tmp_path), visible).checks)


def _with_smi(tmp_path: Path) -> Machine:
    return Machine(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin"}, system="Linux")


def _named(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "code 255"),
        ("no-answer", "-8005: the driver does not answer"),
        ("held", "-8020: another container holds the device"),
        ("no-library", "it lacks a library of the driver"),
    ],
)
def test_npu_smi_that_lists_nothing(tmp_path: Path, name: str, said: str) -> None:
    check = _named(_smi(tmp_path, recorded(name), 255), "npu-smi info")
    assert check.status is Status.WRONG
    assert said in check.found
    assert check.todo


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("NPU 0: Ascend910B2 OK 3391/65536 MB\n", "NPU 0: Ascend910B2 OK 3391/65536 MB"),
        (recorded("910b").replace("|", "│").replace("=", "═"), "│ npu-smi 25.3.rc1  "),
        ("\x7fELF\x02" * 50_000, "\x7fELF\x02\x7fELF"),
        ("", "it printed nothing"),
        (recorded("none") + "| 0  910B2  OK  3391 / 65536 |\n", "| 0  910B2  OK  3391 / 65536 |"),
    ],
)
def test_what_npu_smi_prints_in_another_form_is_shown(
    tmp_path: Path, printed: str, said: str
) -> None:
    check = _named(_smi(tmp_path, printed), "npu-smi info")
    assert check.status is Status.WARNING
    assert check.found.startswith(f"not understood: {said}")
    assert len(check.found) < 200
    assert "by hand" in check.todo


def test_a_chip_in_another_form_beside_known_ones(tmp_path: Path) -> None:
    row = "| 1     910B2               | OK            | 95.8 "
    checks = _smi(tmp_path, recorded("910b").replace(row, row.replace("| OK", "  OK")))
    check = _named(checks, "npu-smi info")
    assert check.status is Status.WARNING
    assert check.found.startswith("1 x 910B2, driver tool 25.3.rc1; not understood: | 1     910B2")
    assert devices.look(_with_smi(tmp_path), None).number is None  # a list is not held to it


@pytest.mark.parametrize(
    ("start", "said"),
    [("#!/gone/sh\n", "its interpreter or loader, is not here"), ("\x7fELF", "format error")],
)
def test_npu_smi_that_does_not_start(tmp_path: Path, start: str, said: str) -> None:
    (tmp_path / "npu-smi").write_text(start)
    (tmp_path / "npu-smi").chmod(0o755)
    there = Machine(tmp_path, {"PATH": str(tmp_path)}, system="Linux")
    check = _named(list(devices.look(there, None).checks), "npu-smi info")
    assert check.status is Status.WARNING
    assert said in check.found
    assert check.todo.startswith("put the npu-smi of this machine's driver in its place")


def test_npu_smi_that_lists_no_chip(tmp_path: Path) -> None:
    check = _named(_smi(tmp_path, recorded("none")), "npu-smi info")
    assert (check.status, check.found) == (Status.WRONG, "lists no NPU")


def test_memory_that_is_not_told(tmp_path: Path) -> None:
    one = recorded("910b").replace("3391 / 65536", "NA   / NA   ")
    row = _named(_smi(tmp_path, one), "NPU memory")
    assert row.found == "at least 13226 MB free on each that tells it; 1 of 2 held by processes"
    row = _named(_smi(tmp_path, one, visible=(0,)), "NPU memory")
    assert row.status is Status.UNCHECKED
    diagnosis = Diagnosis((), False, False, devices.look(_with_smi(tmp_path), None))
    first, second = json.loads(as_json(diagnosis))["devices"]
    assert (first["memory_used_mb"], first["memory_total_mb"]) == (None, None)
    assert (second["memory_used_mb"], second["memory_total_mb"]) == (52310, 65536)


def test_unhealthy_chips(tmp_path: Path) -> None:
    checks = _smi(tmp_path, recorded("unhealthy"))
    critical, alarm = _named(checks, "NPU 0 chip 0"), _named(checks, "NPU 1 chip 0")
    assert (critical.status, critical.found) == (Status.WRONG, "910B2: health is Critical")
    assert (alarm.status, alarm.found) == (Status.WARNING, "910B2: health is Alarm")
    assert "-i 0 -c 0" in critical.todo


def test_an_unhealthy_chip_that_is_not_visible(tmp_path: Path) -> None:
    checks = _smi(tmp_path, recorded("unhealthy"), visible=(1,))
    assert _named(checks, "NPU 0 chip 0").status is Status.WARNING


def test_memory(tmp_path: Path) -> None:
    full = _named(_smi(tmp_path, recorded("full")), "NPU memory")
    assert full.status is Status.WARNING
    assert "NPU 0 chip 0: 1666 of 65536 MB free" in full.found
    assert full.todo.endswith(": processes 9001 python")
    free = _named(_smi(tmp_path, recorded("910b")), "NPU memory")
    assert free.found == "at least 13226 MB free on each; 1 of 2 held by processes"
    elsewhere = _named(_smi(tmp_path, recorded("full"), visible=(1,)), "NPU memory")
    assert elsewhere.found == "at least 13226 MB free on each; 1 of 1 held by processes"
    none = _named(_smi(tmp_path, recorded("910b"), visible=(7,)), "NPU memory")
    assert none.status is Status.UNCHECKED
    other = _named(_smi(tmp_path, recorded("910b"), visible=(0,)), "NPU memory")
    assert other.found == "at least 62145 MB free on each"


def test_npu_smi_that_is_not_there(tmp_path: Path) -> None:
    checks = list(devices.look(Machine(tmp_path, {"PATH": ""}, system="Linux"), None).checks)
    assert _named(checks, "npu-smi info").status is Status.WARNING
    assert _named(checks, "device files").status is Status.WRONG


def test_npu_smi_of_the_driver_is_found_without_path(tmp_path: Path) -> None:
    place = tmp_path / "usr/local/sbin"
    place.mkdir(parents=True)
    program(place, recorded("910b"))
    there = Machine(tmp_path, {"PATH": "/bin:/usr/bin"}, system="Linux")
    assert devices.look(there, None).chips == ("910B2",)


def test_device_files(tmp_path: Path) -> None:
    folder = root(tmp_path / "root", "cann-8.3")
    files = [str(path) for path in (folder / "dev").glob("davinci[0-9]")]

    def check(may_use: bool) -> Check:
        there = Machine(folder, {"PATH": ""}, system="Linux", may_use=lambda _: may_use)
        return _named(list(devices.look(there, None).checks), "device files")

    assert check(True).status is Status.OK
    closed = check(False)
    assert closed.status is Status.WRONG
    assert len(files) == 2
    assert "may not open /dev/davinci0, /dev/davinci1, /dev/davinci_manager" in closed.found
    assert "usermod -aG" in closed.todo
    (folder / "dev" / "hisi_hdc").unlink()
    assert check(True).todo == "hand them into the container: --device /dev/hisi_hdc"
    (folder / "dev" / "svm0").touch()
    (folder / "dev" / "devmm_svm").unlink()
    assert check(True).status is Status.OK  # a board


def test_npu_smi_lists_npus_that_have_no_files(tmp_path: Path) -> None:
    checks = _smi(tmp_path, recorded("910b"))
    assert _named(checks, "npu-smi info").status is Status.OK
    assert _named(checks, "device files").todo.startswith("in a container, mount the driver")
    there = Machine(tmp_path, {}, system="Linux")
    rows = ascend.checks(ascend.installed(there), there, "", ("910B2",))
    assert _named(list(rows), "driver").status is Status.UNCHECKED


# --- versions ---------------------------------------------------------------------------------


def _at(name: str) -> Machine:
    return Machine(FIXTURES / "machines" / name, {}, system="Linux", architecture="x86_64")


def _rows(name: str, torch_npu: str, *chips: str) -> dict[str, Check]:
    there = _at(name)
    checks = ascend.checks(ascend.installed(there), there, torch_npu, chips)
    return {check.name: check for check in checks}


def test_everything_fits() -> None:
    rows = _rows("cann-8.3", "2.8.0", "910B2")
    assert {check.status for check in rows.values()} == {Status.OK}
    assert "8.3.RC1" in rows["CANN toolkit"].found
    assert "published with torch_npu 2.8.0" in rows["CANN toolkit"].found
    assert rows["driver"].found == "25.3.rc1; fits CANN 8.3.RC1, by its version.info"
    assert rows["firmware"].found == "25.3.rc1; fits the driver, by its version.info"


def test_a_compatible_cann_is_no_warning() -> None:
    row = _rows("cann-8.3", "2.6.0")["CANN toolkit"]
    assert row.status is Status.OK
    assert "compatible; torch_npu 2.6.0 came with CANN 8.2.RC1" in row.found


def test_a_cann_of_another_age() -> None:
    row = _rows("cann-8.3", "2.13.0")["CANN toolkit"]
    assert row.status is Status.WARNING
    assert row.todo == "install CANN 9.2.0, or the torch-npu that was published with CANN 8.3.RC1"


def test_a_torch_npu_without_a_published_pair() -> None:
    row = _rows("cann-8.3", "2.7.1.dev20250724")["CANN toolkit"]
    assert row.status is Status.OK
    assert "not checked: no CANN was published for torch_npu 2.7.1.dev20250724" in row.found


def test_the_layout_since_8_5() -> None:
    rows = _rows("cann-9.2", "2.14.0")
    assert rows["CANN toolkit"].found.startswith("9.2.0, /usr/local/Ascend/cann;")
    assert rows["CANN kernels"].found == "9.2.0, Ascend-cann-910b-ops"
    assert "does not say whether it fits" in rows["driver"].found
    assert rows["firmware"].status is Status.UNCHECKED


def test_a_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    folder = root(tmp_path / "root", "cann-8.3")
    file = next(cann_of(folder).glob("*-linux/ascend_toolkit_install.info"))
    file.unlink()
    os.mkfifo(file)
    there = Machine(folder, {}, system="Linux")
    toolkit = next(ascend.checks(ascend.installed(there), there, "2.8.0", ()))
    assert toolkit.status is Status.UNCHECKED


def test_version_cfg_alone_and_kernels_of_another_version() -> None:
    rows = _rows("version-cfg", "2.4.0")
    assert rows["CANN toolkit"].found.startswith("8.0.RC3, ")
    assert rows["CANN kernels"].status is Status.WARNING
    assert "8.0.RC2, but the toolkit is 8.0.RC3" in rows["CANN kernels"].found
    assert rows["driver"].status is Status.WRONG


def test_driver_and_firmware_that_do_not_fit() -> None:
    rows = _rows("misfit", "2.4.0")
    assert rows["driver"].status is Status.WARNING
    assert rows["firmware"].status is Status.WARNING


@pytest.mark.parametrize(
    ("own", "stated", "fits"),
    [
        ("V100R001C19SPC001", "[V100R001C13,V100R001C19],[V100R001C30]", True),
        ("V100R001C15B220", "[V100R001C13,V100R001C19],[V100R001C30]", True),
        ("V100R001C20", "[V100R001C13,V100R001C19],[V100R001C30]", False),
        ("V100R001C30", "[V100R001C13],[V100R001C30]", True),
        ("V200R001C13", "[V100R001C13]", False),
        ("", "[V100R001C13]", None),
        ("V100R001C13", "", None),
    ],
)
def test_families(own: str, stated: str, fits: bool | None) -> None:
    file = Path("version.info")
    driver = versions.Package("1", file, {"innerversion": own})
    toolkit = versions.Package("2", file, {"compatible_version": stated})
    assert versions.drives(driver, toolkit) is fits
    assert versions.drives(toolkit, driver) is fits


def test_kernels_for_another_chip(tmp_path: Path) -> None:
    folder = root(tmp_path / "root", "cann-8.3")
    (cann_of(folder) / "opp" / ascend.KERNEL_FOLDER / "ascend310p").mkdir(parents=True)
    there = Machine(folder, {}, system="Linux")
    found = {
        chip: {c.name: c for c in ascend.checks(ascend.installed(there), there, "", (chip,))}
        for chip in ("910B2", "310P3", "Ascend910")
    }
    assert found["910B2"]["CANN kernels"].status is Status.WRONG
    assert "not for the 910B2" in found["910B2"]["CANN kernels"].found
    assert found["310P3"]["CANN kernels"].status is Status.OK
    assert found["Ascend910"]["CANN kernels"].status is Status.OK


# --- variables --------------------------------------------------------------------------------


def _variables(folder: Path, **environ: str) -> dict[str, Check]:
    there = Machine(folder, {k.upper(): v for k, v in environ.items()}, system="Linux")
    software_of = ascend.installed(there)
    source = ascend.how_to_source(software_of, there, "2.8.0")
    return {c.name: c for c in environment.checks(software_of, there, source, 2)}


def test_sourced_or_not(tmp_path: Path) -> None:
    folder = root(tmp_path / "root", "cann-8.3")
    home = cann_of(folder)
    whole = sourced(home)
    rows = _variables(folder, **whole)
    assert {row.status for row in rows.values()} == {Status.OK}
    unset = _variables(folder)["set_env.sh"]
    assert unset.status is Status.WRONG
    assert unset.todo == "source /usr/local/Ascend/ascend-toolkit/set_env.sh"
    no_opp = _variables(folder, ASCEND_HOME_PATH=str(home))["set_env.sh"]
    assert no_opp.found == "ASCEND_OPP_PATH is not set"
    gone = _variables(folder, **{**whole, "ASCEND_HOME_PATH": "/gone"})["set_env.sh"]
    assert gone.found == "ASCEND_HOME_PATH is /gone, which is not there"
    (home / "compiler").rmdir()
    assert "has no folder compiler" in _variables(folder, **whole)["set_env.sh"].found


def test_library_path(tmp_path: Path) -> None:
    folder = root(tmp_path / "root", "cann-8.3")
    lib = cann_of(folder) / "lib64"
    name = "LD_LIBRARY_PATH"
    assert "holds libhccl.so and libascendcl.so" in _variables(folder)[name].found
    other = tmp_path / "other"
    other.mkdir()
    (other / "libhccl.so").touch()
    two = _variables(folder, LD_LIBRARY_PATH=f"{other}:{lib}")[name]
    assert two.status is Status.WARNING
    assert "more than one CANN" in two.found
    (lib / "libascend_hal.so").unlink()
    assert "the driver's library" in _variables(folder, LD_LIBRARY_PATH=str(lib))[name].found


@pytest.mark.parametrize(
    ("value", "status", "said", "todo"),
    [
        ("0", Status.OK, "0", ""),
        ("0,1", Status.OK, "0,1", ""),
        ("1,0", Status.WRONG, "=1,0 does not ascend", "=0,1"),
        ("0,0", Status.WRONG, "twice", "=0"),
        ("1,2", Status.WRONG, "beyond the last device, which is 1", "=1"),
        ("7", Status.WRONG, "beyond the last device", "=0"),
        ("", Status.WRONG, "no device visible", "=0"),
        ("GPU-8f2a", Status.WRONG, "no device visible", "=0"),
        ("0, 1", Status.WARNING, "=0, 1: only 0 is read", "=0,1"),
        ("0-1", Status.WARNING, "only 0 is read", "=0,1"),
        ("0 - 7", Status.WARNING, "only 0 is read", "=0,1"),
        ("0;1", Status.WARNING, "only 0 is read", "=0,1"),
        ("0,,1", Status.WARNING, "an empty place", "=0,1"),
        ("0,1,", Status.OK, "=0,1,", ""),
        (" 0 , 1", Status.WRONG, "no device visible", "=0,1"),
        ('"0,1"', Status.WRONG, "no device visible", "=0,1"),
        ("\u0660,\u0661", Status.WRONG, "no device visible", "=0,1"),
        ("\N{SUPERSCRIPT TWO}", Status.WRONG, "no device visible", "=0"),
        ("-1", Status.WRONG, "no device visible", "=0"),
        ("001", Status.OK, "=001", ""),
        ("007", Status.WRONG, "beyond the last device, which is 1", "=0"),
        ("0,99999999999999999999999999", Status.WRONG, "beyond the last device", "=0"),
        ("9" * 5000, Status.WRONG, "beyond the last device", "=0"),
    ],
)
def test_visible_devices(value: str, status: Status, said: str, todo: str) -> None:
    check = environment.visible(Machine(environ={environment.VISIBLE: value}), 2)
    assert check.status is status
    assert said in check.found
    assert check.todo == (f"export {environment.VISIBLE}{todo}" if todo else "")


def test_visible_devices_of_an_unknown_number() -> None:
    def check(value: str) -> Check:
        return environment.visible(Machine(environ={environment.VISIBLE: value}), None)

    assert check("40").status is Status.OK
    assert "not checked" in check("40").found
    assert check("0-3").todo.endswith("=0,1,2,3")
    far = check("1,99999999999999999999999999")
    assert (far.status, far.todo) == (Status.WRONG, f"export {environment.VISIBLE}=1")


# --- packages ---------------------------------------------------------------------------------


def _packages(python: str = "3.11.7", needs: tuple[str, ...] = (), **known: str) -> Packages:
    folders = {name: Path("/site") / name for name in known if name.startswith("torch")}
    return Packages(python, folders, known, needs)


def test_other_systems() -> None:
    assert "Linux alone" in software.system(Machine(system="Darwin")).found
    assert software.system(Machine(system="Linux", architecture="riscv64")).status is Status.WRONG
    assert software.system(Machine(system="Linux", architecture="aarch64")).status is Status.OK


def test_python_without_a_wheel() -> None:
    there = Machine(system="Linux", architecture="x86_64", python="/usr/bin/python")
    assert software.python(_packages("3.11.7"), there).status is Status.OK
    check = software.python(_packages("3.7.9"), there)
    assert check.status is Status.WRONG
    assert check.todo.startswith("use Python 3.10, 3.11")


@pytest.mark.parametrize(
    ("torch", "torch_npu", "needs", "status"),
    [
        ("2.8.0+cpu", "2.8.0.post2", ("torch==2.8.0+cpu",), Status.OK),
        ("2.8.0", "2.8.0.post2", ("torch (==2.8.0+cpu)",), Status.OK),
        ("2.13.0", "2.13.0", ("torch==2.13.0.*",), Status.OK),
        ("2.12.0", "2.8.0.post2", ("torch==2.8.0+cpu",), Status.WRONG),
        ("2.1.2", "2.1.0.post17", (), Status.WRONG),
    ],
)
def test_pairs_of_torch(torch: str, torch_npu: str, needs: tuple[str, ...], status: Status) -> None:
    there = Machine(system="Linux", architecture="x86_64")
    check = software.torch(_packages(torch=torch, torch_npu=torch_npu, needs=needs), there)
    assert check.status is status
    if status is Status.WRONG:
        assert re.search(r"pip install torch==2\.[\d.]+\+cpu --index-url ADDRESS,", check.todo)


def test_a_cuda_build(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("cuda: str | None = '12.8'\n")

    def check(torch: str, torch_npu: str) -> Check:
        versions_of = {"torch": torch, "torch_npu": torch_npu}
        packages = Packages("3.11.7", {"torch": tmp_path / "torch"}, versions_of, ())
        return software.torch(packages, Machine(system="Linux", architecture="x86_64"))

    new = check("2.13.0", "2.13.0")
    assert new.status is Status.WRONG
    assert "built for CUDA 12.8" in new.found
    assert "torch==2.13.0+cpu" in new.todo
    assert check("2.1.0", "2.1.0.post17").status is Status.WARNING


@pytest.mark.parametrize(
    ("label", "built"),
    [
        ("cu130", "CUDA 13.0"),
        ("cu118", "CUDA 11.8"),
        ("rocm6.3", "ROCm 6.3"),
        ("xpu", "XPU"),
        ("cpu", ""),
        ("cpu.cxx11.abi", ""),
        ("custom", ""),
    ],
)
def test_a_build_whose_version_names_it(label: str, built: str) -> None:
    there = Machine(system="Linux", architecture="aarch64")
    check = software.torch(_packages(torch=f"2.13.0+{label}", torch_npu="2.13.0"), there)
    assert check.status is (Status.WRONG if built else Status.OK)
    assert check.found.partition(", built for ")[2].partition(":")[0] == built
    # The builds for aarch64 have no label in older releases.
    assert ("pip install torch==2.13.0 --index-url ADDRESS" in check.todo) is bool(built)


def test_a_module_of_the_current_folder() -> None:
    there = Machine(system="Linux", architecture="x86_64")
    known = {"torch": "2.13.0+cpu", "torch_npu": "2.13.0", "numpy": "2.2.0"}
    files = {name: Path(f"/work/{name}.py") for name in known}
    packages = Packages("3.11.7", files, known, (), strangers=frozenset(known))
    for check in (
        software.torch(packages, there),
        software.torch_npu(packages, there),
        software.numpy(packages, ""),
    ):
        assert check.status is Status.WRONG
        assert check.found == (
            f"{known[check.name]}, but Python takes it from /work/{check.name}.py, "
            "which is another module"
        )
        assert check.todo.startswith(f"change to a folder without a {check.name} or {check.name}.")


def test_broken_metadata() -> None:
    there = Machine(system="Linux", architecture="x86_64")
    needs = ("torch==2.13.0", "pyyaml")
    broken = dict.fromkeys(("torch", "numpy", "pyyaml", "scipy"), "its metadata is broken")
    known = {"torch_npu": "2.13.0"}
    packages = Packages("3.11.7", {"torch": Path("/site/torch")}, known, needs, broken)
    rows = [software.torch(packages, there), software.numpy(packages, "")]
    rows += software.requirements(packages, "")
    assert [(row.name, row.status) for row in rows] == [
        ("torch", Status.WRONG),
        ("numpy", Status.WRONG),
        ("pyyaml", Status.WRONG),
        ("torch_npu's packages", Status.OK),
    ]
    assert all(row.found == "its metadata is broken" and row.todo for row in rows[:3])
    assert "scipy" in [row.name for row in software.requirements(packages, "9.2.0")]


@pytest.mark.parametrize(
    ("torch", "todo"),
    [
        ("2.7.1+cpu", "pip install torch-npu==2.7.1.post11"),
        (
            "2.2.0",
            "torch 2.2.0 has no torch_npu here: pip install torch==2.14.0+cpu --index-url ADDRESS, "
            "where ADDRESS is that of PyTorch's CPU builds; then: pip install torch-npu==2.14.0",
        ),
    ],
)
def test_which_torch_npu_to_install(torch: str, todo: str) -> None:
    there = Machine(system="Linux", architecture="x86_64")
    assert software.torch_npu(_packages(torch=torch), there).todo == todo


@pytest.mark.parametrize(
    ("python", "numpy", "torch", "cann", "status"),
    [
        ("3.11.7", "1.26.4", "2.1.0", "8.0.0", Status.OK),
        ("3.11.7", "2.0.2", "2.1.0", "", Status.WRONG),
        ("3.11.7", "2.0.2", "2.7.1", "8.2.RC1", Status.WARNING),
        ("3.13.0", "2.2.0", "2.8.0", "8.5.0", Status.OK),
        ("3.11.7", "2.2.0", "2.13.0", "9.2.0", Status.OK),
    ],
)
def test_numpy_2(python: str, numpy: str, torch: str, cann: str, status: Status) -> None:
    check = software.numpy(_packages(python, torch=torch, numpy=numpy), cann)
    assert check.status is status


def test_missing_packages() -> None:
    packages = _packages(torch_npu="2.13.0", numpy="2.2.0", needs=("torch", "numpy", "pyyaml"))
    own, of_cann = software.requirements(packages, "9.2.0")
    assert (own.status, own.todo) == (Status.WRONG, "pip install pyyaml")
    assert of_cann.status is Status.WARNING
    assert "decorator" in of_cann.todo
    assert len(list(software.requirements(packages, ""))) == 1


# --- failures ---------------------------------------------------------------------------------

ADVICE = Advice(
    "source /usr/local/Ascend/cann/set_env.sh", cpu_torch("2.8.0", "x86_64"), "/src/torch_npu"
)
ACL = "RuntimeError: Initialize:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:152 NPU function "


@pytest.mark.parametrize(
    ("message", "name", "cure"),
    [
        (
            "ImportError: cannot import name '_C' from partially initialized module 'torch_npu' "
            "(most likely due to a circular import) (/src/torch_npu/__init__.py)",
            "torch_npu's source folder",
            "change to a folder",
        ),
        ("ModuleNotFoundError: No module named 'torch_npu._C'", "torch_npu's source folder", ""),
        ("AttributeError: module 'torch' has no attribute 'npu'", "torch knows no NPU", ""),
        (
            "AttributeError: module 'torch' has no attribute '__version__'",
            "another torch",
            "without a torch or torch.py",
        ),
        (
            "ImportError: libhccl.so: cannot open shared object file: No such file or directory. "
            "Please check that the cann package is installed.",
            "CANN's libraries not found",
            "source /usr/local/Ascend/cann/set_env.sh",
        ),
        (
            "ImportError: libascendcl.so: cannot open shared object file: No such file",
            "CANN's libraries not found",
            "source",
        ),
        (
            "ImportError: libascend_hal.so: cannot open shared object file: No such file",
            "driver's libraries not found",
            "driver/lib64",
        ),
        (
            "OSError: libatb.so: cannot open shared object file: No such file or directory",
            "NNAL not found",
            "nnal/atb/set_env.sh",
        ),
        (
            "ImportError: /v/torch_npu/lib/libtorch_npu.so: undefined symbol: "
            "_ZNK3c1010TensorImpl20is_contiguous_customENS_12MemoryFormatE",
            "torch and torch_npu do not match",
            "torch==2.8.0",
        ),
        (
            "ImportError: /v/torch_npu/lib/libtorch_npu.so: undefined symbol: "
            "_ZN5torch10ValueErrorC1EPKcz",
            "torch and torch_npu do not match",
            "",
        ),
        (
            "ImportError: /v/torch_npu/lib/libtorch_npu.so: undefined symbol: "
            "_ZN3atb15CreateOperationINS_5infer14GroupTopkParamEEEiRKT_PPNS_9OperationE",
            "NNAL does not match",
            "",
        ),
        (
            "ImportError: /v/torch_npu/lib/libtorch_npu.so: undefined symbol: aclrtGetDevicesTopo",
            "CANN and torch_npu do not match",
            "install the CANN",
        ),
        (
            "ImportError: /c/bin/../lib/libgomp.so.1: cannot allocate memory in static TLS block",
            "library loaded too late",
            "LD_PRELOAD",
        ),
        (
            "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found",
            "system libraries too old",
            "",
        ),
        (
            "RuntimeError: Two accelerators cannot be used at the same time in PyTorch: npu and "
            "cuda. You can install the cpu version",
            "CUDA build of torch",
            "torch==2.8.0+cpu",
        ),
        (
            "Exception: ASCEND_OPP_PATH environment variable is not set. Please check whether",
            "CANN's variables are wrong",
            "source",
        ),
        ("ModuleNotFoundError: No module named 'yaml'", "missing Python package", "pyyaml"),
        ("AttributeError: _ARRAY_API not found", "NumPy 2", "numpy<2"),
        (
            "RuntimeError: NPU out of memory. Tried to allocate 2.00 MiB (NPU 0; 60.96 GiB total)",
            "out of memory",
            "ASCEND_RT_VISIBLE_DEVICES",
        ),
        (ACL + "error: c10_npu::SetDevice(0), error code is 507033", "device does not start", ""),
        (
            ACL + "error: c10_npu::SetDevice(0), error code is 507033\nE30006: Failed to verify "
            "the OPP",
            "kernels missing",
            "kernels (ops) package",
        ),
        (
            ACL + "error: aclInit(nullptr), error code is 500000\nResource_Busy(EL0005): The "
            "resources are busy.\n[Init][Version]init soc version failed",
            "device busy",
            "npu-smi info",
        ),
        (ACL + "error: aclrtSetDevice, error code is 107001", "no such device", "--device"),
        (ACL + "error: aclInit, error code is 507008", "chip not known", "ascend_install.info"),
        (ACL + "error: call aclnnAdd failed, error code is 561103", "kernels missing", "ops"),
        (
            ACL + "error: at_npu::native::AclSetCompileopt(precision), error code is 500001",
            "CANN's operator compiler does not start",
            "decorator",
        ),
        ("ValueError: quite another thing", "unknown error", "by hand"),
    ],
)
def test_failures_have_names(message: str, name: str, cure: str) -> None:
    tried = Attempt({}, "import torch_npu", (message,), Ran(0, False, ""))
    cause = cause_of(tried, ADVICE)
    assert cause.name == name
    assert cure in cause.cure
    assert "{" not in cause.text + cause.cure


@pytest.mark.parametrize(
    ("hiding", "todo"),
    [
        ((), "read the newest log below ~/ascend/log"),
        (("driver", "device files"), "do what is said of driver, device files; if NPUs are still"),
    ],
)
def test_no_device_points_to_the_rows_that_say_why(hiding: tuple[str, ...], todo: str) -> None:
    values = {"import torch": {}, "import torch_npu": {}, UNAVAILABLE: False}
    tried = Attempt(values, UNAVAILABLE, (), Ran(0, False, ""))
    rows = list(usage.checks(tried, ADVICE._replace(hiding=hiding)))
    assert _named(rows, UNAVAILABLE).todo.startswith(todo)


def test_failures_without_an_exception() -> None:
    def told(code: int, output: str, timed_out: bool = False) -> str:
        tried = Attempt({}, "import torch_npu", (), Ran(code, timed_out, output))
        return cause_of(tried, ADVICE).name

    assert told(-6, "terminate called: Duplicated key in allocator settings\n") == (
        "CUDA build of torch"
    )
    assert told(-11, "") == "crash"
    assert told(-9, "", timed_out=True) == "no end"


# --- the children -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["probe_child.py", "attempt_child.py"])
def test_what_other_pythons_run_is_old_python(name: str) -> None:
    ast.parse((SOURCE / name).read_text(), feature_version=(3, 8))

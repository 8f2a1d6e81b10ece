"""What can be asked for, and the variables that carry it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda2npu.simulator import SimulatorError
from cuda2npu.simulator.environment import (
    Simulation,
    from_environment,
    simulation,
    variables,
)


def test_nothing_asked_for_is_the_default() -> None:
    assert simulation() == from_environment({}) == Simulation(1, "Ascend910B1", None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("16 GB", 16 << 30),
        ("512m", 512 << 20),
        ("1.5g", 3 << 29),
        ("1048576", 1 << 20),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert simulation(memory=text).memory == size


@pytest.mark.parametrize("text", ["", "lots", "-1GiB", "0", "16XB", "GiB"])
def test_no_size(text: str) -> None:
    with pytest.raises(SimulatorError, match="16GiB"):
        simulation(memory=text)


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Ascend910B1", "Ascend910B1"),
        ("910b4-1", "Ascend910B4-1"),
        ("310P", "Ascend310P3"),
        ("ascend910a", "Ascend910A"),
        ("910_93", "Ascend910_9391"),
    ],
)
def test_chips(name: str, chip: str) -> None:
    assert simulation(chip=name).chip == chip


def test_an_unknown_chip_names_the_known_ones() -> None:
    with pytest.raises(SimulatorError, match=r"H100.*Ascend910B1"):
        simulation(chip="H100")


@pytest.mark.parametrize("devices", [0, -1, 65])
def test_no_such_number_of_devices(devices: int) -> None:
    with pytest.raises(SimulatorError, match="1 to 64"):
        simulation(devices=devices)


def test_variables_say_what_was_asked_for() -> None:
    asked = Simulation(4, "Ascend310P3", 1 << 30)
    environ = variables(asked, Path("/stub"), {})
    assert from_environment(environ) == asked
    assert environ["LD_LIBRARY_PATH"] == "/stub"
    assert environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1"


def test_the_library_folder_comes_first_and_once() -> None:
    environ = variables(Simulation(), Path("/stub"), {"LD_LIBRARY_PATH": "/a:/stub::/b"})
    assert environ["LD_LIBRARY_PATH"] == "/stub:/a:/b"


def test_a_variable_that_is_no_number() -> None:
    with pytest.raises(SimulatorError, match="CUDA2NPU_SIMULATE_DEVICES=two"):
        from_environment({"CUDA2NPU_SIMULATE_DEVICES": "two"})

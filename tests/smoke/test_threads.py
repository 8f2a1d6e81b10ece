"""What a script does in threads of its own is led and recorded as what it does in the first.

The same script reads its device from a config, by its path.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from needs import needs

from cuda2npu.running.process import Ended
from cuda2npu.smoke.failure import printed
from cuda2npu.smoke.overlay import Overlay
from smoke.support import Smoke

pytestmark = needs("torch")

SCRIPT = """
import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

settings = json.load(open("settings.json"))
net = nn.Linear(4, 2).to(settings["device"])

def predict():
    return net(torch.ones(1, 4).to("cuda:0") + torch.rand(4, device="cuda"))

first = threading.Thread(target=predict)
first.start(), first.join()
ready = queue.Queue()
threading.Thread(target=lambda: ready.put(torch.ones(1, 4).cuda()), daemon=True).start()
net(ready.get())
with ThreadPoolExecutor(1) as pool:
    pool.submit(predict).result()

def train():
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        net(torch.ones(1, 4).cuda()).sum().backward()
        optimizer.step()

last = threading.Thread(target=train)
last.start(), last.join()
"""


def test_every_thread_is_led_and_recorded(
    run: Smoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "script.py").write_text(SCRIPT)
    (folder / "settings.json").write_text('{"device": "cuda"}')
    monkeypatch.chdir(folder)
    report = run("script.py", steps=2)
    assert report.code == 0, [*report.failures, report.comparison]
    assert report.comparison is not None
    calls = {row.name: row.calls for row in report.comparison.rows}
    assert (calls["Linear"], calls["loss"]) == (3 + 2, 2)
    assert report.comparison.total.max_abs == 0
    assert report.not_rewritten == []
    assert (folder / "settings.json").read_text() == '{"device": "cuda"}'


PRINTED = """\
starting
Exception in thread Thread-1 (predict):
Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 1038, in _bootstrap_inner
    self.run()
  File "{copy}/script.py", line 2, in predict
    raise ValueError(
    ^^^^^^^^^^^^^^^^^
app.errors.NoModel: no model here
done
"""


def test_an_error_that_was_printed_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for folder in (tmp_path, copy):
        (folder / "script.py").write_text("def predict():\n    raise ValueError(\n    )\n")
    ended = Ended(0, False, 1.0, PRINTED.format(copy=copy))
    found = printed("npu", ended, Overlay(tmp_path, copy))
    assert found is not None
    assert found.went_on
    assert found.summary == "app.errors.NoModel: no model here"
    assert [(each.line, each.rewritten) for each in found.pairs] == [(2, "    raise ValueError(")]
    assert printed("npu", ended._replace(output="all is well\n"), Overlay(tmp_path, copy)) is None

"""Run by the environment of kvpress: files of what was read, with tensors made up."""

import json
import os
import sys
import types
from pathlib import Path

package = types.ModuleType("contextcliff_dagster")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package

import torch  # noqa: E402

from contextcliff_dagster.inference.engines.kvpress.kept_reads import KeptReads  # noqa: E402
from contextcliff_dagster.inference.engines.kvpress.pressing import Read  # noqa: E402

folder, cpu = Path(sys.argv[2]), torch.device("cpu")
ROOM = 275_000  # of four reads of 65 kB, not of five


def read(tokens: int) -> Read:
    layers = [(torch.randn(1, 2, tokens, 4), torch.randn(1, 2, tokens, 4)) for _ in range(2)]
    tails = [torch.randn(1, 9, 6) for _ in range(4)]
    scores = [torch.rand(1, 2, tokens).bfloat16() for _ in range(2)]
    made = Read(layers, tails[:2], tuple(tails[2:]), {"p": scores}, 5.0, {"p": 2.0}, 7)
    assert made.size_bytes < ROOM / 4
    return made


def worker(model: str = "m") -> KeptReads:
    return KeptReads(str(folder), {"model": model}, 1, ROOM)


def there(*texts: int) -> list[int]:
    return [n for n in texts if (folder / f"{worker()._key(ids(n))}.safetensors").exists()]


def ids(n: int) -> list[int]:
    return [n] * 470


def keep(by: KeptReads, n: int) -> Read:
    made = read(470)
    by.keep(ids(n), made)
    by.write()
    return made


found: dict[str, object] = {}
made, again = keep(worker(), 1), worker().find(ids(1), "p", cpu)
assert again is not None
ours, theirs = made.tensors(), again.tensors()
same = ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
found["same"] = same and made.about() == again.about()
found["other model"] = worker("other").find(ids(1), "p", cpu) is not None
found["without scores"] = worker().find(ids(1), "h2o", cpu) is not None

(file,) = folder.iterdir()
whole = file.read_bytes()
file.write_bytes(whole[:-100])
found["cut"] = worker().find(ids(1), "p", cpu) is not None
file.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
found["one bit"] = worker().find(ids(1), "p", cpu) is not None
found["after damage"] = [path.name for path in folder.iterdir()]

earlier, later = worker(), worker()
for n in (1, 2, 3):
    keep(earlier, n)
    os.utime(folder / f"{earlier._key(ids(n))}.safetensors", (n, n))
(folder / ".x.tmp").touch()
os.utime(folder / ".x.tmp", (1, 1))
assert later.find(ids(1), "p", cpu)
keep(later, 4)
keep(later, 5)
found["least recently used goes"] = there(1, 2, 3, 4, 5)
keep(later, 6)
assert later.problem is None
keep(later, 7)
found["never its own"] = there(1, 2, 3, 4, 5, 6, 7)
found["problem"] = later.problem
found["abandoned"] = len(list(folder.glob(".*")))
print(json.dumps(found))

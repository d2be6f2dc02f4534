"""Convert a GGUF file to a folder of safetensors, for engines that cannot read GGUF (vLLM).

``python -m tools.dequantize FILE.gguf FOLDER`` writes the quantised weights as float32, with the
file's configuration, tokenizer and chat template. Float32 rounds nothing and takes four bytes per
weight, on disk and in memory.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import uuid
from pathlib import Path

from contextcliff_dagster.contracts import (
    ContextCliffError,
    EngineError,
    install_command,
    pip_install,
)
from contextcliff_dagster.inference.weights import GGUF_LIBRARIES, dequantizing_options, gguf_header


def dequantize(file: Path, folder: Path) -> None:
    """Write ``folder`` (config.json, model.safetensors, tokenizer.json, chat_template.jinja, ...).

    Raises:
        EngineError: a library is missing; ``file`` is not a GGUF file, or has an architecture that
            transformers does not know; ``folder`` already exists or cannot be written.
    """
    gguf_header(file)
    if folder.exists():
        raise EngineError(f"{folder} already exists; choose another folder, or remove it.")
    if absent := [name for name in GGUF_LIBRARIES if importlib.util.find_spec(name) is None]:
        raise EngineError(
            f"Reading GGUF weights needs {' and '.join(absent)}; install with "
            f"{install_command('transformers')}."
        )
    # Only a complete model gets the final name.
    partial = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    try:
        partial.mkdir(parents=True)
        _convert(file, partial)
        partial.rename(folder)
    except OSError as error:
        raise EngineError(
            f"{folder} cannot be written ({error.strerror or error}); check its disk and "
            "permissions."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"{folder} is ready.")


def _convert(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    source = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **source)
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent), **source, dtype=torch.float32, **dequantizing_options()
        )
    except Exception as error:  # transformers raises many kinds
        reason = " ".join(str(error).split())[:300]
        raise EngineError(
            f"transformers cannot read {file} ({reason}); take the model's own safetensors instead."
        ) from error
    # transformers still considers it quantised and would refuse to save it.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _require_same_tokenizer(file, folder)


_PROBE = "In 2024, we'll   pay $1,234.50; naïve façade — 東京\n\n\tdef f(x): return x**2"


def _require_same_tokenizer(file: Path, folder: Path) -> None:
    """Raise EngineError unless the tokenizer in ``folder`` is that of ``file``.

    transformers 5.2 writes that of SmolLM2 with another end token, and 5.23 reads what 5.2 wrote as
    one that drops white space. What 5.23 writes is right.
    """
    from transformers import AutoTokenizer, __version__

    written = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    header = {key.rpartition(".")[2]: value for key, value in gguf_header(file).items()}
    ids = written(_PROBE)["input_ids"]
    begins = header.get("add_bos_token", ids[0] == header.get("bos_token_id"))
    ends = header.get("eos_token_id", written.eos_token_id)
    found = ids[0] == header.get("bos_token_id"), written.eos_token_id
    if found != (begins, ends) or written.decode(ids[1:] if begins else ids) != _PROBE:
        raise EngineError(
            f"transformers {__version__} writes another tokenizer than {file} has; run "
            f"{pip_install('transformers>=5.23')}, or take the model's own safetensors."
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python -m tools.dequantize FILE.gguf FOLDER")
    try:
        dequantize(Path(sys.argv[1]), Path(sys.argv[2]))
    except ContextCliffError as error:
        sys.exit(str(error))

"""Models of transformers from a local folder: nothing is looked up, no code of the folder runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from eris.core.errors import InvalidSetting, library


def pretrained(kind: str, folder: Path, **settings: Any) -> tuple[nn.Module, set[str]]:
    """A model of an Auto class, in float32 from safetensors, and the weights the folder lacks.

    The process-wide random state is put back: transformers draws what is missing from it.
    """
    transformers = the_library()
    with silent(transformers), torch.random.fork_rng(devices=[]):
        try:
            model, report = getattr(transformers, kind).from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="eager",  # no kernel that is chosen by the machine
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **settings,
            )
        except (OSError, ValueError, RuntimeError) as refused:
            expected = f"a folder transformers can load; it says: {refused}"
            raise InvalidSetting("path", str(folder), expected) from refused
    return model, set(report["missing_keys"])


def the_library() -> Any:
    """Transformers, or which extra brings it."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when the library is imported
    return library("transformers", "transformers", "transformers")


@contextmanager
def silent(transformers: Any) -> Iterator[None]:
    """No progress bar and no report of missing weights: whoever loads looks at those."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()

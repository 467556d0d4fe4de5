"""Settings: a file, variables on top, and no typo goes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.kernel.errors import UsageError
from headwater.kernel.settings import (
    RESERVED,
    Settings,
    cache_folder,
    environment,
    home_folder,
    load,
    names,
    variable_of,
    variables,
)


def settings_file(folder: Path, text: str) -> Path:
    file = folder / "headwater.toml"
    file.write_text(text)
    return file


def test_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(environ={}) == Settings.model_validate({})


def test_the_file_in_the_working_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings_file(tmp_path, 'database = "sqlite:///x"\n[storage.s3]\nendpoint = "http://127.0.0.1:9"\n')
    loaded = load(environ={})
    assert loaded.database == "sqlite:///x"
    assert loaded.storage.s3.endpoint == "http://127.0.0.1:9"


def test_variables_win(tmp_path: Path) -> None:
    file = settings_file(tmp_path, '[storage]\nretry_attempts = 2\nretry_budget_seconds = "1m"\n')
    loaded = load(file, {"HEADWATER_STORAGE_RETRY_ATTEMPTS": "9", "HEADWATER_LOG_FORMAT": "json"})
    assert loaded.storage.retry_attempts == 9
    assert loaded.storage.retry_budget_seconds == 60
    assert loaded.log.format == "json"


def test_the_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    file = settings_file(tmp_path, 'database = "x"\n')
    assert load(environ={"HEADWATER_SETTINGS": str(file)}).database == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('databases = "x"', r"unknown setting databases in .*headwater\.toml \(did you mean database\?\)"),
        ("[storage]\nretry_atempts = 3", r"did you mean storage\.retry_attempts\?"),
        ('[storage.s3]\nendpiont = "x"', r"did you mean storage\.s3\.endpoint\?"),
        ("[zebra]\nx = 1", "known: lake, database, coordination"),
        ('log = "text"', r"log in .* must be a table, \[log\]"),
        ("[storage]\nretry_attempts = 0", r"storage\.retry_attempts is not valid: .*HEADWATER_STORAGE_RETRY_ATTEMPTS"),
        ('[storage]\nretry_attempts = "many"', r"storage\.retry_attempts is not valid"),
        ('[storage]\nretry_budget_seconds = "5 parsecs"', r"'5 parsecs' is not a duration"),
        ('[log]\nformat = "xml"', r"log\.format is not valid"),
        ('[storage]\nrequest_timeout_seconds = "inf"', r"storage\.request_timeout_seconds is not valid"),
        ("[storage]\nrequest_timeout_seconds = inf", r"storage\.request_timeout_seconds is not valid"),
        ("[sequence]\nclock_skew_seconds = 1e12", r"sequence\.clock_skew_seconds is not valid"),
        ('[storage.s3]\nendpoint = "nonsense"', r"storage\.s3\.endpoint is not valid: it is not a URL"),
        ('[storage.s3]\nendpoint = "http://key:secret@host"', r"storage\.s3\.endpoint is not valid"),
        ('[storage.s3]\naccess_key_id = "half"', r"access_key_id and secret_access_key go together"),
        ("database = ", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(settings_file(tmp_path, text), {})


def test_seconds_may_be_plain_numbers_in_variables(tmp_path: Path) -> None:
    environ = {"HEADWATER_STORAGE_RETRY_BUDGET_SECONDS": "60", "HEADWATER_STORAGE_REQUEST_TIMEOUT_SECONDS": "500ms"}
    loaded = load(settings_file(tmp_path, ""), environ)
    assert loaded.storage.retry_budget_seconds == 60
    assert loaded.storage.request_timeout_seconds == 0.5


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path, {})


def test_an_unknown_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean HEADWATER_LOG_LEVEL"):
        load(settings_file(tmp_path, ""), {"HEADWATER_LOG_LEVL": "info"})


def test_reserved_variables_are_not_settings(tmp_path: Path) -> None:
    load(settings_file(tmp_path, ""), dict.fromkeys(RESERVED, ""))


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load(tmp_path / "nowhere.toml", {})


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    keys = {"HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": "hunter2", "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": "key"}
    loaded = load(settings_file(tmp_path, ""), keys)
    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in str(loaded)
    with pytest.raises(UsageError) as caught:
        load(settings_file(tmp_path, "[storage.s3]\nsecret_access_key = 12345678"), {})
    assert "12345678" not in str(caught.value)


def test_every_setting_has_a_description_and_its_own_variable() -> None:
    listed = list(names())
    assert all(description for _, description in listed)
    variables = [variable_of(keys) for keys, _ in listed]
    assert len(set(variables)) == len(variables)


def test_no_home_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(UsageError, match=r"no home folder .*HEADWATER_CACHE"):
        cache_folder({})
    with pytest.raises(UsageError, match=r"no home folder .*HEADWATER_HOME"):
        home_folder({})


def test_variables_are_set_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "before")
    with variables({"ONE": "1", "TWO": "2"}):
        assert (environment()["ONE"], environment()["TWO"]) == ("1", "2")
    assert environment()["ONE"] == "before"
    assert "TWO" not in environment()


def test_folders() -> None:
    assert cache_folder({"HEADWATER_CACHE": "relative"}).is_absolute()
    assert cache_folder({"HEADWATER_CACHE": "/c"}) == Path("/c")
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/headwater")
    assert home_folder({"HEADWATER_HOME": "/h"}) == Path("/h")
    assert home_folder({"XDG_DATA_HOME": "/x"}) == Path("/x/headwater")

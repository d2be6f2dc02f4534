"""CONTEXTCLIFF_EXECUTOR: which executor runs the steps, and what the steps tell it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.executors.gpu import (
    CELERY_QUEUE,
    chosen_executor,
    device_tags,
    gpus_left,
    gpus_of_step,
)
from contextcliff_dagster.defs.partitions import range_tags
from contextcliff_dagster.defs.resources import STORE
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.paths import EXECUTOR_SETTINGS
from contextcliff_dagster_tests.support.tiny_study import TINY, Run

INTEGRATIONS = {
    "docker": "dagster_docker",
    "k8s": "dagster_k8s",
    "celery": "dagster_celery",
    "ray": "dagster_ray",
}
START = "dagster/asset_partition_range_start"
END = "dagster/asset_partition_range_end"

EXECUTORS = "contextcliff_dagster.defs.executors"

Models = Callable[..., Study]


@pytest.fixture
def models(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    """The tiny study over models that want so many devices each."""

    def declare(**gpus: int | str | None) -> Study:
        entries = {
            name: {"engine": "reference", "model_id": "reference-short"}
            | ({} if wanted is None else {"gpus": wanted})
            for name, wanted in gpus.items()
        }
        file = tmp_path / "models.yaml"
        file.write_text(json.dumps({"models": entries}))
        monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(file))
        return study.with_models(list(gpus))

    return declare


def test_ours_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_executor() is dg.in_process_executor
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "multiprocess")
    assert chosen_executor() is dg.multiprocess_executor
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "gpu")
    assert chosen_executor().name == "gpu"


def test_an_unknown_name_is_a_sentence_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "slurm")
    with pytest.raises(StudyError, match=r"'slurm'; .*gpu, docker, k8s, celery, ray"):
        chosen_executor()


@pytest.mark.parametrize(("name", "module"), INTEGRATIONS.items())
def test_one_that_is_not_installed_names_its_extra(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", name)
    for part in {module, *(part for part in sys.modules if part.startswith(f"{module}."))}:
        monkeypatch.setitem(sys.modules, part, None)  # as if it were not there
    monkeypatch.delitem(sys.modules, f"{EXECUTORS}.celery_workers", raising=False)
    with pytest.raises(
        StudyError, match=rf"'{name}'.*pip install 'contextcliff-dagster\[{name}\]'"
    ):
        chosen_executor()


@pytest.mark.parametrize("name", ["gpu", *INTEGRATIONS])
def test_the_shipped_settings_fit_their_executor(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in INTEGRATIONS and importlib.util.find_spec(INTEGRATIONS[name]) is None:
        pytest.skip(f"needs contextcliff-dagster[{name}]")
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", name)
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR_CONFIG", str(EXECUTOR_SETTINGS / f"{name}.yaml"))
    assert chosen_executor().name == name


def test_settings_for_another_executor_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "executor.yaml"
    file.write_text("job_namespace: there\n")
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "gpu")
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR_CONFIG", str(file))
    with pytest.raises(StudyError, match=r"executor\.yaml does not fit .*'gpu'.*job_namespace"):
        chosen_executor()
    file.unlink()
    with pytest.raises(StudyError, match=r"executor\.yaml, which cannot be read"):
        chosen_executor()


def test_models_without_devices_leave_no_tag(models: Models) -> None:
    assert device_tags(models(a=None, b=0)) == {}


def test_a_run_needs_what_its_own_models_need(models: Models) -> None:
    study = models(plain=None, one=1, four=4, any="auto")
    tags = device_tags(study)

    def needed(first: str, last: str) -> object:
        return gpus_of_step(tags, {START: f"c|{first}.b00", END: f"c|{last}.b02"})

    assert needed("plain", "plain") == 0
    assert needed("plain", "one") == 1
    assert needed("one", "any") == 4
    assert needed("any", "any") == "auto"
    assert gpus_of_step(tags, range_tags(study, LENGTH_PROFILE, "c")) == 4
    assert gpus_of_step(tags, {"dagster/partition": "c|one.b01"}) == 1
    assert gpus_of_step(tags, {}) == 4
    assert gpus_of_step({"contextcliff/gpus": "2"}, {}) == 2
    assert gpus_of_step({"contextcliff/gpus": "auto"}, {}) == "auto"
    assert gpus_of_step({}, {}) == 0


def test_models_that_were_asked_everything_need_no_device(
    models: Models, run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = models(one=1, two=2)
    (tmp_path / "studies" / "tiny.yaml").write_text(
        TINY.replace("reference-short, reference-long", "one, two")
    )
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(tmp_path / "studies"))
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "left,right")
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "leases"))
    tags, step = device_tags(study), "tiny__predictions"

    with open_ledger(store) as ledger:
        campaign = campaign_of(ledger, study)
    every = range_tags(study, LENGTH_PROFILE, campaign)

    def left(tagged: Mapping[str, str] = every, **config: object) -> object:
        run_config = {"ops": {step: {"config": config}}}
        return gpus_left(step, tags, dg.DagsterRun("profile_tiny", "1", run_config, tags=tagged))

    assert left() == 2  # nothing is drawn, nothing was ever asked
    run("raw_corpus", "length_map", "distribution_audit", "manifest", of=study)
    pilot = {"predictions": {"samples_per_bin": 2}}
    run("predictions", of=study, first="two.b00", last="two.b02", config=pilot)
    assert left() == 2  # four examples a bin
    assert left(samples_per_bin=2) == 1
    assert left({"dagster/partition": f"{campaign}|two.b01"}, samples_per_bin=2) == 0
    assert left({"dagster/partition": f"{campaign}|two.b01"}) == 2
    assert left({}, samples_per_bin=2) == 1  # without partitions, all of the current campaign
    run("predictions", of=study, first="one.b00", last="two.b02")
    assert left() == 0
    assert left(range_tags(study, LENGTH_PROFILE, "another")) == 2
    assert left({"dagster/partition": "two|b01"}) == 2  # the step says so
    assert left(from_ledger_only=True) == 0
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "another"))
    assert left(from_ledger_only=True) == 2
    resources = {STORE: {"config": {"root": str(store.root)}}}
    named = dg.DagsterRun("profile_tiny", "1", {"resources": resources}, tags=every)
    assert gpus_left(step, tags, named) == 0


@pytest.mark.parametrize(
    ("executor", "tag", "value"),
    [
        (
            "k8s",
            "dagster-k8s/config",
            {
                "container_config": {"resources": {"limits": {"nvidia.com/gpu": "2"}}},
                "pod_spec_config": {
                    "tolerations": [
                        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
                    ]
                },
            },
        ),
        ("ray", "dagster-ray/config", {"num_gpus": 2}),
        ("celery", "dagster-celery/queue", CELERY_QUEUE),
    ],
)
def test_the_executor_in_use_is_told_in_its_own_words(
    executor: str,
    tag: str,
    value: object,
    models: Models,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = models(plain=None, two=2)
    assert tag not in device_tags(study)
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", executor)
    assert device_tags(study)[tag] == value


def test_kubernetes_understands_the_tag(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pytest.importorskip("dagster_k8s.job", reason="needs contextcliff-dagster[k8s]")
    monkeypatch.setenv("CONTEXTCLIFF_EXECUTOR", "k8s")
    tags = {"dagster-k8s/config": json.dumps(device_tags(models(two=2))["dagster-k8s/config"])}
    read = job.get_user_defined_k8s_config(tags)
    assert read.container_config["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_the_gpu_executor_costs_nothing_where_it_is_not_chosen() -> None:
    code = (
        "import sys; from contextcliff_dagster.definitions import defs;"
        "defs().get_repository_def();"
        "print([m for m in sys.modules if m.startswith(('dagster_k8s', 'dagster_docker', "
        "'dagster_celery', 'dagster_ray', 'kubernetes', 'celery', 'ray')) or 'gpu_executor' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

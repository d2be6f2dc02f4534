"""Variants of a model's KV cache: their names, what they are made of, and what they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.code_version import models_of
from contextcliff_dagster.inference.execution.checks import known_identity
from contextcliff_dagster.inference.models.kv_variants import (
    POLICIES,
    PRECISIONS,
    KvVariant,
    kv_baseline,
    kv_entry,
    kv_of,
    kv_policy,
    parse_kv_variant,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model, load_models
from contextcliff_dagster.studies import find_study

TYPES = sorted({name for types in PRECISIONS.values() for name in types})
BASES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,30}", fullmatch=True)
BUDGETS = st.floats(0.1, 1).map(lambda budget: float(f"{budget:g}"))


def of(line: str, tmp_path: Path) -> ModelEntry:
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n  m: {{{line}}}\n", encoding="utf-8")
    return load_models([file])["m"]


class TestNames:
    @given(BASES, st.sampled_from([*POLICIES, *TYPES]), BUDGETS)
    def test_a_name_says_what_it_was_made_of(self, base: str, policy: str, budget: float) -> None:
        made = KvVariant(base, policy)
        variant = made._replace(budget=budget) if made.has_budget else made
        assert parse_kv_variant(variant.name) == variant

    @given(BASES)
    def test_other_names_are_none(self, name: str) -> None:
        last = name.rpartition("+")[2].partition("@")[0]
        assume("+" not in name or kv_policy(last) is None)
        assert parse_kv_variant(name) is None

    @pytest.mark.parametrize("name", ["+snapkv@0.2", "m+snapkv", "m+none@0.5", "m+q4_0@0.5", "m+"])
    def test_half_names_are_none(self, name: str) -> None:
        assert parse_kv_variant(name) is None

    @pytest.mark.parametrize("spelt", ["H2O", "h2o", "H20", "h20"])
    def test_h2o_is_known_however_it_is_spelt(self, spelt: str) -> None:
        assert parse_kv_variant(f"a+b+{spelt}@.50") == ("a+b", "h2o", 0.5)


class TestEntries:
    @pytest.mark.parametrize("name", ["reference-short+snapkv@0.2", "reference-short+SnapKV@0.20"])
    def test_a_policy_runs_on_kvpress_under_the_name_that_was_asked_for(self, name: str) -> None:
        entry = get_model(name)
        assert (entry.name, entry.engine, entry.model_id) == (name, "kvpress", "reference-short")
        assert entry.kv is not None
        assert (entry.kv.policy, entry.kv.budget) == ("snapkv", 0.2)
        assert (entry.window_tokens, entry.concurrency) == (8192, 1)

    def test_llama_cpp_keeps_its_weights_for_both_kinds(self) -> None:
        base, models = get_model("smollm2-135m"), load_models()
        pressed, fewer_bits = models["smollm2-135m+knorm@0.5"], models["smollm2-135m+q4_0"]
        assert (pressed.engine, fewer_bits.engine) == ("kvpress", "llamacpp")
        assert pressed.weights == fewer_bits.weights == base.weights
        assert (fewer_bits.kv_cache_dtype, fewer_bits.kv) == ("q4_0", None)

    def test_an_entry_of_that_name_comes_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name, file = "reference-short+none", tmp_path / "models.yaml"
        file.write_text(f"models:\n  {name}: {{engine: openai, base_url: 'http://x/v1'}}\n")
        monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(file))
        assert get_model(name).engine == "openai"
        assert get_model("reference-long+none").engine == "kvpress"

    def test_they_are_found_and_not_listed(self) -> None:
        models, name = load_models(), "reference-short+h2o@0.3"
        assert name in models
        assert models.get(name) == models[name]
        assert name not in list(models)
        assert len(models) == len(list(models))
        for absent in ("other+h2o@0.3", "reference-short+h2o", "gpt-4o-mini+h2o@0.3"):
            assert absent not in models
            assert models.get(absent) is None

    def test_a_study_depends_on_the_policy(self) -> None:
        study = find_study("reference").with_models(["reference-short+snapkv@0.2"])
        assert models_of(study)["reference-short+snapkv@0.2"]["kv"]["budget"] == 0.2

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("gpt-4o-mini+snapkv@0.2", "its server decides which entries"),
            ("gpt-4o-mini+fp8", "its server decides that"),
            ("reference-short+q4_0", "that needs llamacpp"),
            ("smollm2-135m-kv4+knorm@0.5", "its cache is q4_0"),
            ("reference-short+snapkv@0.05", "from 0.1 to 1, not 0.05"),
            ("reference-short+snapkv@1.01", "from 0.1 to 1, not 1.01"),
            ("reference-short+snapkv", "for instance reference-short.snapkv@0.2"),
            ("reference-short+none+knorm@0.5", "itself a variant; .* without `.none`"),
            ("reference-short+knorm@0.5+none", "itself a variant; .* without `.knorm@0.5`"),
            ("reference-short+lru@0.2", "There is no model"),
            ("other+snapkv@0.2", "There is no model"),
        ],
    )
    def test_what_cannot_be_is_refused_in_a_sentence(self, name: str, says: str) -> None:
        with pytest.raises(StudyError, match=says):
            get_model(name)

    def test_identities_of_variants_are_compared_by_name(self) -> None:
        models = load_models()
        with pytest.raises(StudyError, match="its server decides"):
            known_identity("gpt-4o-mini+snapkv@0.2", models, None)
        with pytest.raises(StudyError, match="no campaign has measured it"):
            known_identity("gpt-4o-mini-snapkv", models, None)

    def test_what_is_no_policy_is_refused(self) -> None:
        with pytest.raises(StudyError, match="Unknown KV policy 'lru'; choose one of none, snapkv"):
            kv_entry(get_model("reference-short"), "lru", 0.5)
        with pytest.raises(StudyError, match="policy none keeps all"):
            kv_entry(get_model("reference-short"), "none", 0.5)

    def test_vllm_has_fp8_and_with_its_weights_here_every_policy(self, tmp_path: Path) -> None:
        there = of("engine: vllm, model_id: hub/name", tmp_path)
        here = of("engine: vllm, weights: /models/m, dtype: auto, concurrency: 8", tmp_path)
        assert kv_entry(there, "fp8").kv_cache_dtype == "fp8"
        assert kv_entry(here, "fp8").concurrency == 8
        pressed = kv_entry(here, "tova", 0.5)
        assert (pressed.engine, pressed.dtype, pressed.concurrency) == ("kvpress", None, 1)
        with pytest.raises(StudyError, match="set `weights` to a folder"):
            kv_entry(there, "tova", 0.5)
        coded = of("engine: vllm, weights: /models/m, quantization: awq", tmp_path)
        with pytest.raises(StudyError, match="cannot read weights with quantization 'awq'"):
            kv_entry(coded, "tova", 0.5)

    def test_an_engine_of_another_package_has_no_compressed_cache_by_itself(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(StudyError, match="'reference' takes no `kv` block"):
            of("engine: reference, kv: {policy: none}", tmp_path)

    def test_rope_is_named_as_transformers_names_it(self, tmp_path: Path) -> None:
        base = of(
            "engine: llamacpp, weights: m.gguf, rope_scaling: {type: yarn, factor: 2}", tmp_path
        )
        assert kv_entry(base, "none").rope_scaling == {"rope_type": "yarn", "factor": 2}


class TestBaselines:
    def test_of_policies_the_same_engine(self, tmp_path: Path) -> None:
        assert kv_baseline(get_model("smollm2-135m"), "snapkv") == "smollm2-135m+none"
        plain = of("engine: kvpress, model_id: reference-short", tmp_path)
        assert kv_baseline(plain, "snapkv") == "m"
        pressed = of("engine: kvpress, model_id: reference-short, kv: {policy: none}", tmp_path)
        assert kv_baseline(pressed, "snapkv") == "m+none"

    def test_of_precisions_the_usual_type(self, tmp_path: Path) -> None:
        assert kv_baseline(get_model("smollm2-135m"), "q8_0") == "smollm2-135m"
        assert kv_baseline(get_model("smollm2-135m-kv4"), "q8_0") == "smollm2-135m-kv4+f16"
        with pytest.raises(StudyError, match="needs a model of models"):
            kv_baseline(of("engine: vllm, kv_cache_dtype: fp8", tmp_path), "fp8")

    def test_what_an_entry_is_a_variant_of(self, tmp_path: Path) -> None:
        assert kv_of(get_model("smollm2-135m+tova@0.3")) == ("smollm2-135m", "tova", 0.3)
        assert kv_of(get_model("smollm2-135m+q5_1")) == ("smollm2-135m", "q5_1", 1)
        assert kv_of(get_model("smollm2-135m-kv4")) == ("smollm2-135m-kv4", "q4_0", 1)
        assert kv_of(get_model("smollm2-135m")) is None
        line = "engine: kvpress, model_id: reference-short, kv: {policy: knorm, budget: 0.5}"
        assert kv_of(of(line, tmp_path)) == ("m", "knorm", 0.5)

"""One list of patterns hides every provider's keys in errors and in reports, and nothing else.

Keys are made when the tests run, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.redaction import (
    HIDDEN,
    hide_keys,
    public_url,
    redact,
    secrets_of,
    without_secrets,
)

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"
URL_SAFE = LETTERS + "_-"


def of(alphabet: str, length: int) -> str:
    """Return the same characters every time; the last is a digit or near the alphabet's end."""
    rng = random.Random(f"{alphabet} {length}")
    return "".join(rng.choices(alphabet, k=length - 1)) + alphabet[-4]


def token(*parts: str) -> str:
    return base64.urlsafe_b64encode("".join(parts).encode()).decode().rstrip("=")


JWT = ".".join(
    (
        token(json.dumps({"alg": "HS256"})),
        token(json.dumps({"sub": "1234567890"})),
        of(URL_SAFE, 43),
    )
)
KEYS = {
    "OpenAI, old": "sk-" + of(LETTERS, 48),
    "OpenAI, project": "sk-proj-" + of(URL_SAFE, 120),
    "OpenAI, service account": "sk-svcacct-" + of(URL_SAFE, 60),
    "Anthropic": "sk-ant-api03-" + of(URL_SAFE, 95),
    "DeepSeek, Qwen": "sk-" + of(HEX, 32),
    "OpenRouter": "sk-or-v1-" + of(HEX, 64),
    "LangFuse": "pk-lf-" + of(HEX, 32),
    "Google": "AI" + "zaSy" + of(URL_SAFE, 33),
    "Google, OAuth": "ya29." + of(URL_SAFE, 60),
    "Google, Vertex AI": "AQ." + of(URL_SAFE, 50),
    "NVIDIA": "nvapi-" + of(URL_SAFE, 64),
    "Groq": "gsk_" + of(LETTERS, 52),
    "xAI": "xai-" + of(LETTERS, 80),
    "Perplexity": "pplx-" + of(LETTERS, 48),
    "Cerebras": "csk-" + of(LETTERS, 48),
    "Replicate": "r8_" + of(LETTERS, 37),
    "Fireworks": "fw_" + of(LETTERS, 24),
    "Together": "tgp_v1_" + of(URL_SAFE, 43),
    "Hugging Face": "hf_" + of(LETTERS, 34),
    "RunPod": "rpa_" + of(LETTERS, 40),
    "Databricks": "dapi" + of(HEX, 32),
    "LangSmith": "lsv2_pt_" + of(HEX, 32) + "_" + of(HEX, 10),
    "Weights & Biases": "wandb_v1_" + of(URL_SAFE, 60),
    "GitHub": "ghp_" + of(LETTERS, 36),
    "GitHub, OAuth": "gho_" + of(LETTERS, 36),
    "GitHub, fine-grained": "github_pat_" + of(LETTERS, 22) + "_" + of(LETTERS, 59),
    "GitLab": "glpat-" + of(URL_SAFE, 20),
    "AWS": "AK" + "IA" + of(UPPER, 16),
    "AWS, temporary": "AS" + "IA" + of(UPPER, 16),
    "AWS Bedrock": "ABSK" + of(LETTERS, 128) + "=",
    "Slack": "xox" + "b-" + "123456789012-" + of(LETTERS, 24),
    "Stripe": "sk_" + "live_" + of(LETTERS, 24),
    "JSON Web Token": JWT,
}
NAMED = {
    "bearer": "Authorization: Bearer {}",
    "bearer, percent-encoded": "authorization%3DBearer%20{}",
    "Azure": "{{'api-key': '{}'}}",
    "Azure API Management": "Ocp-Apim-Subscription-Key: {}",
    "Mistral, Cohere": "x-api-key: {}",
    "JSON": '{{"api_key": "{}"}}',
    "JSON in JSON": '{{\\"password\\": \\"{}\\"}}',
    "environment": "MISTRAL_API_KEY={} was refused",
    "environment, token": "export HUB_TOKEN={}",
    "AWS, secret": "aws_secret_access_key = {}",
    "Weights & Biases, old": "wandb api key: {}",
    "Google, query": "GET /v1beta/models?alt=sse&key={}&x=1",
    "query": "GET /v1?api_key={}&x=1",
    "query, token": "https://host/v1?token={}",
    "Azure, signature": "https://host/c?sv=2024&sig={}",
    "user of an address": "https://me:{}@host/v1 refused",
    "user alone": "postgresql://{}@host/db",
    "a word": "invalid token: {}",
}


@pytest.mark.parametrize("provider", KEYS)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "Incorrect API key provided: {}. Find yours at https://host/keys",
        '{{"error": "\\n{}"}}',
        "model%3Dm%26x%3D{}",
        "/v1/{}/chat",
    ],
)
def test_a_key_of_every_provider_is_hidden_in_errors_and_reports(provider: str, text: str) -> None:
    key = KEYS[provider]
    shown = text.format(key)
    assert redact(shown, limit=1000) == hide_keys(shown) == without_secrets([shown])[0]
    assert HIDDEN in hide_keys(shown)
    for start in range(4, len(key) - 12, 4):  # no part of it either
        assert key[start : start + 12] not in hide_keys(shown)


@pytest.mark.parametrize("place", NAMED)
@pytest.mark.parametrize(
    "key", [of(HEX, 32), of(LETTERS, 40), "abcdEFGH12345678", of(LETTERS + "+/", 84) + "=="]
)
def test_a_key_without_a_form_is_hidden_where_its_name_is(place: str, key: str) -> None:
    if place.startswith("user"):  # where no slash can be
        key = key.replace("/", ".")
    shown = NAMED[place].format(key)
    assert HIDDEN in hide_keys(shown)
    for start in range(0, len(key) - 12, 4):
        assert key[start : start + 12] not in hide_keys(shown)
    assert redact(redact(shown)) == redact(shown)


def test_a_user_and_a_password_in_base_64_are_hidden() -> None:
    pair = base64.b64encode(b"somebody:a password").decode()
    assert hide_keys(f"proxy answered to Basic {pair}") == f"proxy answered to Basic {HIDDEN}"
    assert hide_keys("basic multilingual JavaScript") == "basic multilingual JavaScript"


def test_a_private_key_is_hidden() -> None:
    block = (
        f"-----BEGIN RSA PRIVATE {'KEY'}-----\n{of(LETTERS, 64)}\n-----END RSA PRIVATE {'KEY'}-----"
    )
    assert hide_keys(f"a {block} b") == f"a {HIDDEN} b"


ORDINARY = [
    "time to first token: 120 ms, token: 0.5 each, tokens=512, max_tokens: 4096",
    "Basic Instructions for bearer bonds; the secret: read slowly, then answer",
    "meta-llama/Llama-3.1-8B-Instruct, ufal/sk-classification-base-v2, sonar/pplx-70b-online-chat",
    "hf_transformers_version, fw_small_batch_size, gsk_report, xai-explainability-benchmark-suite",
    "risk-adjusted-return-on-capital-2024, task-classification12, desk-abcdefghijklmnop1234",
    "https://host:8443/v1/chat/completions?version=2024-10-21&limit=5, see user@example.org",
    "eyJhbGciOiJIUzI1NiJ9 alone",
    "/data/store/quick/report/2026-11-21/report.png, s3://bucket/key=1/part-0.parquet",
    "Unexpected token } in JSON at position 12; token: string expected",
]
WORDS = st.sampled_from(
    "sk pk hf gsk xai fw r8 dapi token key secret model base large instruct basic bearer v2".split()
    + "8b q4 classification meta llama gpt mini report chat api data asia akia 2024 long".split()
)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_are_kept(text: str) -> None:
    assert redact(text) == text
    assert without_secrets({"note": text}) == {"note": text}


@given(parts=st.lists(WORDS, min_size=1, max_size=6), joint=st.sampled_from([*"-_/. ", "--"]))
def test_names_of_models_and_paths_are_kept(parts: list[str], joint: str) -> None:
    text = joint.join(parts)
    assert redact(text) == text


@given(content=st.binary(min_size=1, max_size=300))
def test_hashes_and_documents_in_base_64_are_kept(content: bytes) -> None:
    for text in (content.hex(), content.hex()[:40], base64.b64encode(content).decode()):
        assert redact(f"sha256 {text}, end", limit=2000) == f"sha256 {text}, end"


@given(
    secret=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=40),
    before=st.text(max_size=40),
)
def test_a_known_secret_never_survives(secret: str, before: str) -> None:
    assert secret not in redact(f"{before} {secret} after", [secret]).replace(HIDDEN, "")


def test_a_text_under_a_telling_name_is_hidden_whatever_it_is() -> None:
    result = {"api_key": "plainly", "api_key_env": "A_KEY", "deep": [{"Password": "x", "n": 1}]}
    assert without_secrets(result) == {
        "api_key": HIDDEN,
        "api_key_env": "A_KEY",
        "deep": [{"Password": HIDDEN, "n": 1}],
    }


def test_the_environments_secrets_are_those_named_so_and_long_enough() -> None:
    environment = {
        "A_KEY": "abcdefgh",
        "B_TOKEN": "short",
        "PATH": "/usr/bin",
        "c_secret": "12345678",
    }
    assert secrets_of(environment) == ("12345678", "abcdefgh")


def test_long_answers_of_servers_are_shortened_to_one_line() -> None:
    assert len(redact("x\n" * 1000)) == 300


def test_an_address_is_shown_without_its_secrets() -> None:
    assert public_url("https://me:secret@host:8443/v1/?key=s#f") == "https://host:8443/v1"
    assert public_url("http://[::1]:8000/v1") == "http://[::1]:8000/v1"

"""Safe-context policies: the certified cap as a file that a gateway checks before each call.

Belongs here: the fields of `safe-context.json`, reading it, and checking a call against it; not
finding the cap. Gateways import it on their hot path: only `count` needs third-party packages.

    policy = SafeContext.load("safe-context.json", model="my-model")
    policy.check(tokens=48_000)   # raises above the cap, when expired, for another model
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError, level
from contextcliff_dagster.contracts.values import check_fields
from contextcliff_dagster.user_files import loads, read_file

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

POLICY_VERSION = "1.1"
Day = date  # the field `date` hides the type within the class
EXPIRES_AFTER_DAYS = 90
"""Default lifetime of a policy: hosted models change within months without notice."""


class PolicyError(ContextCliffError):
    """Raised for a policy that cannot be created, read or applied."""


class AboveCapError(PolicyError):
    """Raised for a call that is longer than the policy allows."""


class ExpiredPolicyError(PolicyError):
    """Raised for a policy whose expiry date has passed."""


class ForeignPolicyError(PolicyError):
    """Raised for a policy measured for another model, serving identity or tokenizer."""


@dataclass(frozen=True, slots=True)
class SafeContext:
    """One model's cap on one task, and the evidence behind it.

    ``identity`` is the hash of the serving identity, or ``None`` if unknown. ``safe_cap_tokens`` is
    the length of the longest safe document, in tokens of ``tokenizer``; ``cap_prompt_tokens`` is
    the same cap for the whole prompt, in the model's own tokens. Up to the cap, a loss of
    ``tolerance`` is ruled out at ``confidence``, from ``n`` scored examples of ``n_documents``, and
    the limit ``ttft_ms_p95`` on the time to the first token holds, if there is one. ``date`` is the
    day of the last call, ``expiry`` the last valid day; versions are of method and scorers.
    """

    model: str
    identity: str | None
    task: str | None
    tokenizer: str | None
    tokenizer_sha256: str | None
    safe_cap_tokens: int
    cap_prompt_tokens: int | None
    tolerance: float
    confidence: float
    n: int
    n_documents: int | None
    date: str
    expiry: str
    study: str | None
    campaign: str | None
    score: str
    ttft_ms_p95: float | None = None
    method_version: str | None = None
    scorer_version: str | None = None
    note: str | None = None
    schema_version: str = POLICY_VERSION

    @classmethod
    def load(cls, path: str | Path, model: str | None = None) -> SafeContext:
        """Return the policy in ``path``; if it holds several, the one for ``model``.

        Raises:
            PolicyError: the file is missing or not a policy, or ``model`` is None for several.
            ForeignPolicyError: the file has no policy for ``model``.
        """
        policies = load_policies(path)
        models = ", ".join(policy.model for policy in policies)
        if model is None and len(policies) > 1:
            raise PolicyError(f"{path} holds policies for {models}; choose one of these models.")
        for policy in policies:
            if model in (None, policy.model):
                return policy
        raise ForeignPolicyError(
            f"{path} is a policy for {models}, not for {model!r}; measure that model, or name the "
            "one the policy was made for."
        )

    @classmethod
    def from_cliffs(
        cls,
        cliffs: Cliffs,
        *,
        tokenizer_sha256: str | None = None,
        expires: int | Day = EXPIRES_AFTER_DAYS,
        allow_baseline: bool = False,
    ) -> SafeContext:
        """Return the policy that ``cliffs`` supports.

        ``expires`` is a number of days or the last valid day. With ``allow_baseline``, the end of
        the baseline region serves as the cap if no longer one is certified.

        Raises:
            PolicyError: the result has no (joint) cap, scores less than its ``min_score`` up to it,
                or the policy would already have expired.
        """
        limit, why = cliffs.latency_limit, cliffs.safe_cap_reason
        joint = cliffs.joint_cap if limit else None
        if joint and joint.limited_by == "latency_limit":
            why = "The limit on the time to the first token is not shown to hold at any length."
        own: dict[str, Any] = {"score": cliffs.score.name, "schema_version": POLICY_VERSION}
        if (joint.tokens if joint else cliffs.safe_cap_tokens) is None:
            late = joint is not None and joint.limited_by == "latency_limit"
            if late or not allow_baseline or (cap := cliffs.baseline_cap_tokens) is None:
                raise PolicyError(
                    f"No policy for {cliffs.model}: its verdict is {cliffs.verdict} and no length "
                    f"is certified as safe. {why}"
                )
            own |= {"safe_cap_tokens": cap, "cap_prompt_tokens": None, "note": why}
        elif limit and joint:
            own |= {"safe_cap_tokens": joint.tokens, "cap_prompt_tokens": joint.prompt_tokens}
        own_score = cliffs.baseline.mean if "note" in own else cliffs.cap_score
        if cliffs.min_score is not None and (own_score is None or own_score < cliffs.min_score):
            reached = "unknown" if own_score is None else f"{own_score:.2f}"
            raise PolicyError(
                f"No policy for {cliffs.model}: its mean score up to the cap is {reached}, below "
                f"the study's `min_score` of {cliffs.min_score:.2f}."
            )
        if limit and joint:
            own["ttft_ms_p95"] = limit.ttft_ms_p95
        ended = cliffs.provenance["times"].get("measured_to") or cliffs.created_at
        measured = datetime.fromisoformat(ended).astimezone(UTC).date()
        expiry = expires if isinstance(expires, date) else measured + timedelta(days=expires)
        if expiry < _today():
            raise PolicyError(
                f"The policy of {cliffs.model} would have expired on {expiry}: it was measured "
                f"on {measured}; measure it again in a new campaign, or set --expires."
            )
        own |= {"date": measured.isoformat(), "expiry": expiry.isoformat()}
        own["tokenizer_sha256"] = tokenizer_sha256
        names = [field.name for field in fields(cls) if hasattr(cliffs, field.name)]
        return cls(**{name: getattr(cliffs, name) for name in names} | own)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON-ready values (`schemas/safe-context.schema.json`)."""
        return {"schema_version": self.schema_version, **asdict(self)}

    def check(
        self,
        tokens: int | None = None,
        *,
        prompt_tokens: int | None = None,
        model: str | None = None,
        identity: str | None = None,
        tokenizer: str | None = None,
        today: Day | None = None,
    ) -> None:
        """Raise unless the call is within the policy.

        ``tokens`` is the document's length by the policy's tokenizer; ``prompt_tokens`` the whole
        prompt's by the model's own; give either or both. ``model``, ``identity`` and ``tokenizer``
        are compared only if given. ``today`` is a UTC date; None means the current one.

        Raises:
            AboveCapError, ExpiredPolicyError, ForeignPolicyError: the call is not within it.
            PolicyError: no token count is given, or the policy has no cap in prompt tokens.
        """
        for name, value in (("model", model), ("identity", identity), ("tokenizer", tokenizer)):
            if value not in (None, expected := getattr(self, name)):
                raise ForeignPolicyError(
                    f"This policy is for {name} {_short(expected)}, not {_short(value)}; the cap "
                    "does not carry over, so measure the new one."
                )
        if (today or _today()) > date.fromisoformat(self.expiry):
            raise ExpiredPolicyError(
                f"The policy of {self.model} expired on {self.expiry} (measured {self.date}); "
                f"measure again with `contextcliff campaign new {self.study or 'STUDY'}` and "
                "export a new one."
            )
        if tokens is None and prompt_tokens is None:
            raise PolicyError("Nothing to check against the policy: give tokens or prompt_tokens.")
        if prompt_tokens is not None and self.cap_prompt_tokens is None:
            raise PolicyError(
                f"The policy of {self.model} has no cap in prompt tokens; give document tokens."
            )
        for name, counted, cap in (
            ("document", tokens, self.safe_cap_tokens),
            ("prompt", prompt_tokens, self.cap_prompt_tokens),
        ):
            if counted is not None and counted < 0:
                raise PolicyError(f"A {name} cannot have {counted} tokens; count it again.")
            if counted is not None and cap is not None and counted > cap:
                limit = self.ttft_ms_p95
                late = f" or a first token after {limit:g} ms" if limit else ""
                raise AboveCapError(
                    f"A {name} of {counted:,} tokens is above the safe cap of {cap:,} for "
                    f"{self.model}: beyond it a loss of {level(self.tolerance)}{late} is not ruled "
                    f"out at {level(self.confidence)} confidence; shorten or split it."
                )

    def count(
        self,
        text: str,
        tokenizer: str | None = None,
        open_by_name: Callable[[str], Tokenizer] | None = None,
    ) -> int:
        """Count the tokens of ``text`` with the policy's tokenizer.

        ``tokenizer`` locates the policy's tokenizer on this machine (``file:PATH``), with the same
        vocabulary; ``open_by_name`` opens it in place of `api.open_tokenizer`.

        Raises:
            PolicyError: the policy names no tokenizer.
            ForeignPolicyError: the tokenizer differs from the policy's.
            StudyError: the tokenizer cannot be opened.
        """
        from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

        name = tokenizer or self.tokenizer
        if name is None:
            raise PolicyError(
                f"The policy of {self.model} names no tokenizer; give the number of tokens."
            )
        opened = (open_by_name or open_tokenizer)(name)
        if self.tokenizer_sha256 not in (None, opened.fingerprint):
            raise ForeignPolicyError(
                f"{name} is not the tokenizer that the policy of {self.model} counts with "
                "(its vocabulary has another SHA-256); give the policy's tokenizer."
            )
        return opened.count(text)


def guard(
    path: str | Path,
    tokens: int | None = None,
    *,
    prompt_tokens: int | None = None,
    model: str | None = None,
    identity: str | None = None,
    tokenizer: str | None = None,
) -> SafeContext:
    """Check a call against the policy in ``path`` and return the policy.

    Raises the errors of `SafeContext.load` and `SafeContext.check`.
    """
    policy = SafeContext.load(path, model)
    policy.check(tokens, prompt_tokens=prompt_tokens, identity=identity, tokenizer=tokenizer)
    return policy


def load_policies(path: str | Path) -> list[SafeContext]:
    """Return every policy in ``path``, a file of one object or an array of objects.

    Raises:
        PolicyError: the file is missing, damaged, newer, or not a policy.
    """
    try:
        content = loads(read_file(path))
    except OSError as error:
        raise PolicyError(
            f"Cannot read the policy {path} ({error.strerror}); `contextcliff policy` makes one."
        ) from error
    except ValueError as error:
        raise PolicyError(f"{path} is not JSON ({error}); export the policy again.") from error
    rows = content if isinstance(content, list) else [content]
    if not rows:
        raise PolicyError(f"{path} holds no policy; export it again.")
    return [_policy(row, path) for row in rows]


def as_json(policies: Sequence[SafeContext]) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the content of a policy file: one object, or an array for several models."""
    rows = [policy.to_dict() for policy in policies]
    return rows[0] if len(rows) == 1 else rows


def _policy(row: Any, path: str | Path) -> SafeContext:
    version = row.get("schema_version") if isinstance(row, dict) else None
    if not isinstance(version, str):
        raise PolicyError(f"{path} is not a contextcliff policy; `contextcliff policy` makes one.")
    if version.partition(".")[0] != POLICY_VERSION.partition(".")[0]:
        raise PolicyError(
            f"{path} has schema version {version}, known here: {POLICY_VERSION}; upgrade "
            "contextcliff-dagster or export the policy again."
        )
    try:
        policy = SafeContext(**{f.name: row[f.name] for f in fields(SafeContext) if f.name in row})
        check_fields(policy, shares=("tolerance", "confidence"))
        date.fromisoformat(policy.expiry)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{path} is damaged ({error}); export the policy again.") from error
    return policy


def _today() -> date:
    return datetime.now(UTC).date()


def _short(value: str | None) -> str:
    if value is None:
        return "unknown"
    return repr(value if len(value) <= 44 else f"{value[:12]}...{value[-4:]}")

"""Gateway settings, the policy file (read again when it changes), and request metrics.

Metrics go to the application's own OpenTelemetry meter provider
(`opentelemetry.metrics.set_meter_provider`), or nowhere if that API is not installed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from contextcliff_dagster.policy import PolicyError, SafeContext, load_policies

log = logging.getLogger("contextcliff_dagster.gateway")


class PolicyFile:
    """Policies by model from the file at ``path``, reread when it changes.

    If the file is broken or gone, the policies that were read last stay in force, with a warning.
    A look-up costs one check of the file's status.

    Raises:
        PolicyError: there is no usable policy at the start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen = self._signature()
        self._policies = _by_model(path)

    def policies(self) -> dict[str, SafeContext]:
        if self._signature() != self._seen:
            with self._lock:  # otherwise a thread with the older file might finish last
                self._read_again()
        return self._policies

    def _read_again(self) -> None:
        # Taken before reading, so that a write in between counts as another change.
        if (now := self._signature()) == self._seen:
            return
        try:
            self._policies = _by_model(self.path)
        except PolicyError as error:
            log.warning("The policies that were read before stay in force: %s", error)
        else:
            log.info("Read %s again: %s", self.path, ", ".join(self._policies))
        self._seen = now

    def _signature(self) -> tuple[int, ...] | None:
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _by_model(path: Path) -> dict[str, SafeContext]:
    policies: dict[str, SafeContext] = {}
    for policy in load_policies(path):
        if (other := policies.setdefault(policy.model, policy)) is not policy:
            raise PolicyError(
                f"{path} holds two policies for {policy.model} (tasks {other.task} and "
                f"{policy.task}); keep one of them, or a gateway for each."
            )
    return policies


REQUESTS = "contextcliff.gateway.requests"
EXPIRED = "contextcliff.gateway.expired_requests"
CAP_SHARE = "contextcliff.gateway.cap_share"
MODEL = "gen_ai.request.model"
"""OpenTelemetry's standard attribute, also on the spans of measuring."""
_SHARES = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, 8.0]


class GateMetrics:
    """Counters of requests, and a histogram of their tokens as a share of the cap.

    Only models with a policy become attributes, because callers can send any number of names.
    ``meter_provider`` replaces the application's.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        self._requests: Any = None
        self._expired: Any = None
        self._shares: Any = None
        with suppress(ImportError):
            from opentelemetry import metrics

            meter = metrics.get_meter("contextcliff_dagster", meter_provider=meter_provider)
            self._requests = meter.create_counter(
                REQUESTS, unit="{request}", description="Requests by outcome."
            )
            self._expired = meter.create_counter(
                EXPIRED, unit="{request}", description="Requests under an expired policy."
            )
            self._shares = meter.create_histogram(
                CAP_SHARE,
                unit="1",
                description="Tokens of the prompt as a share of the safe cap.",
                explicit_bucket_boundaries_advisory=_SHARES,
            )

    def counted(self, outcome: str, model: str | None) -> None:
        if self._requests is not None:
            named = {MODEL: model} if model else {}
            self._requests.add(1, {"contextcliff.outcome": outcome, **named})

    def expired(self, model: str) -> None:
        if self._expired is not None:
            self._expired.add(1, {MODEL: model})

    def measured(self, share: float, model: str, counted_by: str) -> None:
        if self._shares is not None:
            named = {MODEL: model, "contextcliff.counted_by": counted_by}
            self._shares.record(share, named)


Unknown = Literal["pass", "refuse"]
Expired = Literal["refuse", "enforce", "pass"]
Count = Literal["tokenizer", "bytes"]


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Settings of one gateway.

    ``policy`` is the file that `contextcliff policy` writes. ``models`` maps names in requests to
    names in the policy, where they differ. ``route_to`` maps a model of the policy to the model for
    prompts above its cap (whose own cap, if any, applies, too). ``unknown`` is the rule for calls
    that cannot be checked: a model without a policy, a body that is not JSON, images and files.
    ``expired`` is the rule for a policy past its last day: refuse every call, enforce its cap, or
    let everything pass. ``tokenizers`` maps models to the policy's tokenizer on this machine
    (``file:PATH``). ``count`` is ``tokenizer``, which has to open at the start, or ``bytes``, whose
    number is an upper bound. ``allowance_tokens`` are the tokens of system text, tools and question
    that every prompt has besides its documents.
    """

    policy: Path
    models: Mapping[str, str] = field(default_factory=dict)
    route_to: Mapping[str, str] = field(default_factory=dict)
    unknown: Unknown = "pass"
    expired: Expired = "refuse"
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    count: Count = "tokenizer"
    allowance_tokens: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> GateSettings:
        """Return settings ``given`` by name, checked.

        Raises:
            PolicyError: a name is unknown, a value is invalid, or no policy is named.
        """
        known = [setting.name for setting in fields(cls)]
        for name in given:
            if name not in known:
                raise PolicyError(
                    f"The gateway has no setting {name!r}; it has {', '.join(known)}."
                )
        values = {name: value for name, value in given.items() if value is not None}
        if not isinstance(values.get("policy"), str | Path):
            raise PolicyError(
                "The gateway needs the setting 'policy', the path of safe-context.json; "
                "`contextcliff policy` writes that file."
            )
        values["policy"] = Path(values["policy"]).expanduser()
        for name in ("models", "route_to", "tokenizers"):
            table = values.get(name, {})
            if not isinstance(table, Mapping) or not all(
                isinstance(text, str) and text for pair in table.items() for text in pair
            ):
                raise PolicyError(f"The gateway's setting {name!r} must map names to names.")
        for name, kind in (("unknown", Unknown), ("expired", Expired), ("count", Count)):
            if values.get(name, get_args(kind)[0]) not in get_args(kind):
                raise PolicyError(
                    f"The gateway's setting {name!r} is {values[name]!r}; use one of "
                    f"{', '.join(get_args(kind))}."
                )
        allowance = values.get("allowance_tokens", 0)
        if type(allowance) is not int or not 0 <= allowance <= 1_000_000_000:
            raise PolicyError(
                f"The gateway's setting 'allowance_tokens' is {allowance!r}; use a number of "
                "tokens, 0 or more."
            )
        return cls(**values)

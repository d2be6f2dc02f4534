"""What an operator sets: which policy, and what happens above the cap and without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from contextcliff_dagster.policy import PolicyError

Unknown = Literal["pass", "refuse"]
Expired = Literal["refuse", "enforce", "pass"]


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Of one gateway.

    ``policy`` is the file that `contextcliff policy` writes. ``models`` maps names in requests to
    those of the policy, where they differ. ``route_to`` maps a model of the policy to the name that
    a prompt above its cap goes to instead (that one's cap holds, too, where it has one).
    ``unknown`` is for what cannot be checked: a model without a policy, a body that is not JSON,
    images and files. ``expired`` is for a policy past its last day: refuse every call, enforce its
    cap all the same, or let everything pass. ``tokenizers`` maps models to where the policy's
    tokenizer is on this machine (``file:PATH``). ``allowance_tokens`` are those of system text,
    tools and question that every prompt has besides its documents.
    """

    policy: Path
    models: Mapping[str, str] = field(default_factory=dict)
    route_to: Mapping[str, str] = field(default_factory=dict)
    unknown: Unknown = "pass"
    expired: Expired = "refuse"
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    allowance_tokens: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> GateSettings:
        """``given`` by their names, checked.

        Raises:
            PolicyError: a name is unknown, a value is not what it takes, or no policy is named.
        """
        known = [one.name for one in fields(cls)]
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
                raise PolicyError(f"The gateway's setting {name!r} is no table of names to names.")
        for name, kind in (("unknown", Unknown), ("expired", Expired)):
            if values.get(name, get_args(kind)[0]) not in get_args(kind):
                raise PolicyError(
                    f"The gateway's setting {name!r} is {values[name]!r}; write one of "
                    f"{', '.join(get_args(kind))}."
                )
        allowance = values.get("allowance_tokens", 0)
        if type(allowance) is not int or not 0 <= allowance <= 1_000_000_000:
            raise PolicyError(
                f"The gateway's setting 'allowance_tokens' is {allowance!r}; write a number of "
                "tokens, 0 or more."
            )
        return cls(**values)

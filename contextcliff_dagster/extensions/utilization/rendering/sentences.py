"""The sentences of prose: for each type of record those of each verbosity.

``{name}`` is a field of the record, worded as its kind is by default, or one of `templates.SLOTS`.
The first sentence of each standard list is the design document's, where it has one, with the year
added and a clock of 24 hours (its midnight is 12:00:00). Every sentence of one type says that
type's word (sale, restock, transfer ...), so that a question about it can be answered whichever was
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
from contextcliff_dagster.extensions.utilization.rendering.formats import Verbosity

SENTENCES: Mapping[BenchmarkName, Mapping[str, Mapping[Verbosity, tuple[str, ...]]]] = {
    "warehouse": {
        "initial": {
            "standard": (
                "At {at}, {warehouse} held an initial stock of {units} of {sku}.",
                "{warehouse} started with an initial stock of {units} of {sku} at {at}.",
                "On {on}, the initial stock of {sku} at {warehouse} was {units}.",
                "The initial stock of {warehouse} on {on} included {units} of {sku}.",
            ),
            "terse": ("{moment}: {warehouse} initially had {units} of {sku}.",),
            "descriptive": (
                "When the inventory was opened at {full_moment}, {full_warehouse} held an "
                "initial stock of {units} of {full_sku}.",
                "According to the opening inventory taken at {full_moment}, the initial stock of "
                "{full_sku} at {full_warehouse} amounted to {units}.",
            ),
        },
        "sale": {
            "standard": (
                "At {at}, {warehouse} sold {units_out} of {sku}.",
                "{warehouse} sold {units_out} of {sku} at {at}.",
                "On {on}, a sale of {units_out} of {sku} was recorded at {warehouse}.",
                "A sale on {on} took {units_out} of {sku} out of {warehouse}.",
            ),
            "terse": ("{moment}: {warehouse} sold {units_out} of {sku}.",),
            "descriptive": (
                "In a sale that was recorded at {full_moment}, {full_warehouse} sold {units_out} "
                "of {full_sku} to a customer.",
                "At {full_moment}, a sale to a customer took {units_out} of {full_sku} out of "
                "the stock of {full_warehouse}.",
            ),
        },
        "restock": {
            "standard": (
                "At {at}, {warehouse} was restocked with {units} of {sku}.",
                "{warehouse} was restocked with {units} of {sku} at {at}.",
                "On {on}, a restock added {units} of {sku} at {warehouse}.",
                "A restock on {on} brought {units} of {sku} into {warehouse}.",
            ),
            "terse": ("{moment}: {warehouse} restocked {units} of {sku}.",),
            "descriptive": (
                "In a restock that was recorded at {full_moment}, {full_warehouse} took delivery "
                "of {units} of {full_sku} from a supplier.",
                "At {full_moment}, a restock by a supplier brought {units} of {full_sku} into "
                "the stock of {full_warehouse}.",
            ),
        },
        "transfer_out": {
            "standard": (
                "At {at}, {warehouse} transferred {units_out} of {sku} to {dest}.",
                "{warehouse} sent {units_out} of {sku} by transfer to {dest} at {at}.",
                "On {on}, {units_out} of {sku} left {warehouse} on a transfer to {dest}.",
                "A transfer on {on} took {units_out} of {sku} out of {warehouse}, bound for "
                "{dest}.",
            ),
            "terse": ("{moment}: {warehouse} transferred {units_out} of {sku} to {dest}.",),
            "descriptive": (
                "In an outgoing transfer that was recorded at {full_moment}, {full_warehouse} "
                "sent {units_out} of {full_sku} to {full_dest}.",
                "At {full_moment}, a transfer took {units_out} of {full_sku} out of the stock of "
                "{full_warehouse}, and its destination was {full_dest}.",
            ),
        },
        "transfer_in": {
            "standard": (
                "At {at}, {warehouse} received {units} of {sku} by transfer from {source}.",
                "{warehouse} took in {units} of {sku} by transfer from {source} at {at}.",
                "On {on}, {units} of {sku} arrived at {warehouse} on a transfer from {source}.",
                "A transfer on {on} brought {units} of {sku} into {warehouse}, coming from "
                "{source}.",
            ),
            "terse": (
                "{moment}: {warehouse} received {units} of {sku} transferred from {source}.",
            ),
            "descriptive": (
                "In an incoming transfer that was recorded at {full_moment}, {full_warehouse} "
                "received {units} of {full_sku} from {full_source}.",
                "At {full_moment}, a transfer brought {units} of {full_sku} into the stock of "
                "{full_warehouse}, and it came from {full_source}.",
            ),
        },
        "adjustment": {
            "standard": (
                "At {at}, the stock of {sku} at {warehouse} was {stock_change} in an adjustment.",
                "In an adjustment at {at}, the stock of {sku} at {warehouse} was {stock_change}.",
                "On {on}, {warehouse} made an adjustment, and its stock of {sku} was "
                "{stock_change}.",
                "{warehouse} had its stock of {sku} {stock_change} in an adjustment on {on}.",
            ),
            "terse": ("{moment}: adjustment at {warehouse}, {sku} {stock_change}.",),
            "descriptive": (
                "In an adjustment that was recorded after a stock count at {full_moment}, the "
                "stock of {full_sku} at {full_warehouse} was {stock_change}.",
                "At {full_moment}, an adjustment was made in which the recorded stock of "
                "{full_sku} at {full_warehouse} was {stock_change}.",
            ),
        },
    },
    "constraints": {
        "fact": {
            "standard": (
                "{entity} {holds}.",
                "The {attr} of {entity} is {value}.",
                "{entity} has {value} as its {attr}.",
                "It is known that {entity} {holds}.",
            ),
            "terse": ("{entity}'s {attr} is {value}.",),
            "descriptive": (
                "It has been established as a fact that the attribute {attr} of {full_entity} "
                "has the value {value}.",
                "For {full_entity}, the value of the attribute {attr} is known to be {value}.",
            ),
        },
        "eq": {
            "standard": (
                "{e1} and {e2} have the same {attribute}.",
                "{e1} has the same {attribute} as {e2}.",
                "The {attribute} of {e1} equals that of {e2}.",
                "{e1} shares its {attribute} with {e2}.",
            ),
            "terse": ("{e1} and {e2} match in {attribute}.",),
            "descriptive": (
                "The value of the attribute {attribute} is the same for {full_e1} and for "
                "{full_e2}.",
                "With regard to the attribute {attribute}, {full_e1} has exactly the same value "
                "as {full_e2}.",
            ),
        },
        "neq": {
            "standard": (
                "{entity} {fails}.",
                "The {attr} of {entity} is not {value}.",
                "{entity} does not have {value} as its {attr}.",
                "The {attr} of {entity} cannot be {value}.",
            ),
            "terse": ("{entity}'s {attr} is not {value}.",),
            "descriptive": (
                "It has been ruled out that the attribute {attr} of {full_entity} has the value "
                "{value}.",
                "For {full_entity}, the value of the attribute {attr} is known to be something "
                "other than {value}.",
            ),
        },
        "impl": {
            "standard": (
                "If {if_entity} {if_holds}, then {then_entity} {then_holds}.",
                "{then_entity} {then_holds} if {if_entity} {if_holds}.",
                "Whenever {if_entity} {if_holds}, {then_entity} {then_holds}.",
                "If the {if_attr} of {if_entity} is {if_value}, the {then_attr} of {then_entity} "
                "is {then_value}.",
            ),
            "terse": (
                "If {if_entity}'s {if_attr} is {if_value}, {then_entity}'s {then_attr} is "
                "{then_value}.",
            ),
            "descriptive": (
                "If it is the case that the attribute {if_attr} of {full_if} has the value "
                "{if_value}, then it follows that the attribute {then_attr} of {full_then} has "
                "the value {then_value}.",
                "The attribute {then_attr} of {full_then} has the value {then_value} provided "
                "that the attribute {if_attr} of {full_if} has the value {if_value}.",
            ),
        },
        "mut": {
            "standard": (
                "The {a1} of {e1} is the same as the {a2} of {e2}.",
                "The {a1} of {e1} and the {a2} of {e2} are the same.",
                "The {a1} of {e1} equals the {a2} of {e2}.",
                "The {a1} of {e1} matches the {a2} of {e2}.",
            ),
            "terse": ("{e1}'s {a1} is {e2}'s {a2}.",),
            "descriptive": (
                "The value of the attribute {a1} of {full_e1} is the same as the value of the "
                "attribute {a2} of {full_e2}.",
                "Whatever value the attribute {a1} of {full_e1} has, the attribute {a2} of "
                "{full_e2} has the same value.",
            ),
        },
    },
    "network": {
        "node": {
            "standard": (
                "{id} exists in the network.",
                "{id} is part of the network.",
                "The network includes {id}.",
                "{id} is one of the nodes of the network.",
            ),
            "terse": ("{id} exists.",),
            "descriptive": (
                "Among the nodes that make up the network, there is {full_id}.",
                "The nodes that make up the network include {full_id}.",
            ),
        },
        "edge": {
            "standard": (
                "There is a connection from {from} to {to} with initial weight {weight}.",
                "{from} is connected to {to} with an initial weight of {weight}.",
                "A connection with an initial weight of {weight} leads from {from} to {to}.",
                "The connection from {from} to {to} has an initial weight of {weight}.",
            ),
            "terse": ("{from} connects to {to}, initial weight {weight}.",),
            "descriptive": (
                "In the network as it was set up, there is a directed connection that leads from "
                "{full_from} to {full_to} and has an initial weight of {weight}.",
                "The initial weight of the connection that leads from {full_from} to {full_to} "
                "is {weight}, as the network was set up.",
            ),
        },
        "set": {
            "standard": (
                "At {at}, the connection from {from} to {to} was updated to weight {value}.",
                "The weight of the connection from {from} to {to} was set to {value} at {at}.",
                "On {on}, the connection from {from} to {to} was given a weight of {value}.",
                "An update on {on} set the weight of the connection from {from} to {to} to "
                "{value}.",
            ),
            "terse": ("{moment}: weight from {from} to {to} set to {value}.",),
            "descriptive": (
                "In an update that was recorded at {full_moment}, the weight of the connection "
                "that leads from {full_from} to {full_to} was set to a new value of {value}.",
                "As the result of an update carried out at {full_moment}, the connection that "
                "leads from {full_from} to {full_to} was given a new weight of {value}.",
            ),
        },
        "add": {
            "standard": (
                "At {at}, the weight of the connection from {from} to {to} was {change}.",
                "The weight of the connection from {from} to {to} was {change} at {at}.",
                "On {on}, the connection from {from} to {to} had its weight {change}.",
                "In an update on {on}, the weight of the connection from {from} to {to} was "
                "{change}.",
            ),
            "terse": ("{moment}: weight from {from} to {to} {change}.",),
            "descriptive": (
                "In an update that was recorded at {full_moment}, the previous weight of the "
                "connection that leads from {full_from} to {full_to} was {change}.",
                "As the result of an update carried out at {full_moment}, the connection that "
                "leads from {full_from} to {full_to} had its weight {change}.",
            ),
        },
        "multiply": {
            "standard": (
                "At {at}, the weight of the connection from {from} to {to} was multiplied by "
                "{value}.",
                "The weight of the connection from {from} to {to} was multiplied by {value} at "
                "{at}.",
                "On {on}, the connection from {from} to {to} had its weight multiplied by {value}.",
                "An update on {on} multiplied the weight of the connection from {from} to {to} "
                "by {value}.",
            ),
            "terse": ("{moment}: weight from {from} to {to} multiplied by {value}.",),
            "descriptive": (
                "In an update that was recorded at {full_moment}, the previous weight of the "
                "connection that leads from {full_from} to {full_to} was multiplied by a factor "
                "of {value}.",
                "As the result of an update carried out at {full_moment}, the connection that "
                "leads from {full_from} to {full_to} had its weight multiplied by a factor of "
                "{value}.",
            ),
        },
    },
}

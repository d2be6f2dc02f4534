"""GET requests of GraphQL only read: Dagster's webserver would run a mutation, too."""

from __future__ import annotations

from urllib.parse import parse_qs

from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse

from contextcliff_dagster.web_guard.guard import Refused


def check_read(path: str, query: str) -> None:
    """Let queries pass.

    Raises:
        Refused: a document in the query string is a mutation or a subscription, or unreadable.
    """
    if not path.rstrip("/").endswith("/graphql"):
        return
    for document in parse_qs(query).get("query", []):
        try:
            definitions = parse(document, no_location=True).definitions
        except (GraphQLError, RecursionError):
            # Not left to Dagster: how deep a document may be nested depends on who reads it.
            raise Refused(400, "This GraphQL document cannot be read.") from None
        for node in definitions:
            if isinstance(node, OperationDefinitionNode) and node.operation != OperationType.QUERY:
                raise Refused(405, f"Send a {node.operation.value} by POST, as JSON.")

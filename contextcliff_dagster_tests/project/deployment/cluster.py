"""A stand-in for a Kubernetes API server that runs the command of each job on this machine.

It knows what dagster-k8s asks of one: to make a job, and how it is. The manifests are kept.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


@dataclass
class Cluster:
    """What was asked of it.

    Args:
        environment: of every pod, below what its manifest sets.
        sources: variables of config maps and secrets, by their name.
        folder: logs of the pods.
    """

    environment: Mapping[str, str]
    sources: Mapping[str, Mapping[str, str]]
    folder: Path
    jobs: dict[str, Manifest] = field(default_factory=dict)
    pods: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def variables(self, container: Manifest) -> dict[str, str]:
        """The container's environment, as Kubernetes composes it.

        Raises:
            KeyError: it asks for a config map or secret that is not there.
        """
        found: dict[str, str] = {}
        for source in container.get("envFrom", []):
            ((_, reference),) = source.items()
            found |= self.sources[reference["name"]]
        for variable in container.get("env", []):
            if "value" in variable:
                found[variable["name"]] = variable["value"]
            else:
                key = variable["valueFrom"]["secretKeyRef"]
                found[variable["name"]] = self.sources[key["name"]][key["key"]]
        return found

    def create(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        self.jobs[name] = manifest
        with (self.folder / f"{name}.log").open("wb") as log:
            self.pods[name] = subprocess.Popen(
                container["args"],
                env={**self.variables(container), **self.environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def status(self, name: str) -> Manifest:
        code = self.pods[name].poll()
        return {} if code is None else {"failed": 1} if code else {"succeeded": 1}

    def logs(self) -> str:
        return "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}"
            for log in sorted(self.folder.glob("*.log"))
        )


@contextlib.contextmanager
def running_cluster(cluster: Cluster, kubeconfig: Path) -> Iterator[Cluster]:
    """Serve it on a free port of the loopback interface; ``kubeconfig`` is written for clients."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self, body: Manifest, status: int = 200) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path.split("?")[0].endswith("/jobs"), self.path
            cluster.create(manifest)
            self.answer(manifest, 201)

        def do_GET(self) -> None:
            name = self.path.split("?")[0].removesuffix("/status").rpartition("/")[2]
            if name not in cluster.jobs:
                self.answer({"kind": "Status", "code": 404}, 404)
            else:
                self.answer({**cluster.jobs[name], "status": cluster.status(name)})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    entry = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [entry],
                "users": [{"name": "tests", "user": {}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "tests"}}],
                "current-context": "here",
            }
        ),
        "utf-8",
    )
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        for pod in cluster.pods.values():
            pod.kill()
            pod.wait(120)

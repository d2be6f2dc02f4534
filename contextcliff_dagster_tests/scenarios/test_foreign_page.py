"""A page of another site in the user's own browser starts no run, with the UI open next to it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from contextcliff_dagster_tests.support.dagster_ui import LAUNCH, DagsterUi, running_ui
from contextcliff_dagster_tests.support.postgres import free_port

pytestmark = pytest.mark.browser

LAUNCH_NOW = LAUNCH.replace("($asset: [String!]!)", "").replace("$asset", '["quick", "raw_corpus"]')
BY_LINK = f"/graphql?query={quote(LAUNCH_NOW)}"

# Each way by which a page may send something to another site; what came of it by name.
ATTACKS = """
const [targets, launch, byLink] = ARGUMENTS;
const body = JSON.stringify({query: launch});
const fetched = (url, options) => fetch(url, {credentials: "include", ...options})
  .then(r => r.type == "opaque" ? "sent" : `read ${r.status}`, () => "refused");
const element = (tag, url, more = {}) => new Promise(done => {
  const e = Object.assign(document.createElement(tag), more);
  e.onload = () => done("loaded"); e.onerror = () => done("failed");
  e.src = url; document.body.append(e);
});
const form = (method, action, enctype) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.name = `frame${Math.random()}`;
  document.body.append(frame);
  const f = document.createElement("form");
  Object.assign(f, {method, action, enctype, target: frame.name});
  const [name, value] = enctype == "text/plain"
    ? [body.slice(0, -1) + ',"a":"', '"}'] : ["query", launch];
  f.append(Object.assign(document.createElement("input"), {name, value}));
  document.body.append(f);
  frame.onload = () => done("shown"); f.submit();
});
const talk = url => new Promise(done => {
  const socket = new WebSocket(url, "graphql-ws");
  socket.onopen = () => {
    socket.send(JSON.stringify({type: "start", id: "1", payload: {query: launch}}));
    done("open");
  };
  socket.onerror = () => done("refused");
});
const found = {};
for (const t of targets) {
  const results = {
    get: fetched(t + byLink), getUnread: fetched(t + byLink, {mode: "no-cors"}),
    read: fetched(t + "/graphql?query={version}"),
    json: fetched(t + "/graphql", {method: "POST", body,
      headers: {"Content-Type": "application/json"}}),
    image: element("img", t + byLink), script: element("script", t + byLink),
    frame: element("iframe", t + "/runs"), link: element("iframe", t + byLink),
    socket: talk(t.replace("http", "ws") + "/graphql"),
    formGet: form("GET", t + "/graphql", "application/x-www-form-urlencoded"),
  };
  for (const type of ["text/plain", "text/plain; application/json",
                      "application/x-www-form-urlencoded", "multipart/form-data"]) {
    results[`fetch ${type}`] = fetched(t + "/graphql",
      {method: "POST", mode: "no-cors", body, headers: {"Content-Type": type}});
    results[`link ${type}`] = fetched(t + byLink,
      {method: "POST", mode: "no-cors", body, headers: {"Content-Type": type}});
    if (!type.includes(";")) results[`form ${type}`] = form("POST", t + "/graphql", type);
  }
  navigator.sendBeacon(t + byLink, body);
  for (const [name, result] of Object.entries(results)) found[`${t} ${name}`] = await result;
}
return found;
"""
OWN_SOCKET = """
return new Promise(done => {
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/graphql", "graphql-ws");
  socket.onopen = () => socket.send(JSON.stringify({type: "connection_init"}));
  socket.onmessage = message => done(JSON.parse(message.data).type);
  socket.onerror = () => done("refused");
});
"""


@contextmanager
def foreign_site(ui: DagsterUi) -> Iterator[int]:
    """Another server of this machine, with links to the UI; its port."""
    page = (
        '<!doctype html><title>elsewhere</title><link rel="icon" href="data:,">'
        f'<a id="link" href="{ui.link}">a</a><a id="runs" href="{ui.address}/runs">b</a>'
    ).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def test_a_foreign_page_starts_no_run_and_the_ui_works(tmp_path: Path) -> None:
    from contextcliff_dagster_tests.support.browser import Browser

    pictures = Path(os.environ.get("CONTEXTCLIFF_SCREENSHOTS", tmp_path))
    port = str(free_port())
    with running_ui(tmp_path, "--port", port) as ui, foreign_site(ui) as foreign:
        assert ui.address == f"http://127.0.0.1:{port}"
        browser = Browser(ui, tmp_path / "chromium")
        driver = browser.driver
        driver.set_script_timeout(300)
        try:
            # The page that loads knows no token any more, and is alive.
            browser.open("/locations/contextcliff_dagster/jobs/profile_quick")
            browser.see("//button[contains(normalize-space(.),'Materialize')]")
            assert "token" not in driver.current_url
            assert driver.execute_script(OWN_SOCKET) == "connection_ack"
            assert driver.execute_script("return document.cookie") == ""
            browser.screenshot(pictures / "ui-guarded.png")

            # Another port of this machine is the same site: the cookie alone would not keep it out.
            targets = [f"http://127.0.0.1:{port}", f"http://localhost:{port}"]
            arguments = json.dumps([targets, LAUNCH_NOW, BY_LINK])
            for site in ("127.0.0.1", "localhost"):
                driver.get(f"http://{site}:{foreign}/")
                found = driver.execute_script(ATTACKS.replace("ARGUMENTS", arguments))
                assert len(found) == 2 * 21
                for attack, result in found.items():
                    assert not result.startswith("read"), attack
                    if attack.endswith(("socket", "json")):
                        assert result == "refused", attack
                    if attack.endswith(("image", "script")):
                        assert result == "failed", attack
            runs = ui.ask("{runsOrError {... on Runs {results {runId}}}}")["runsOrError"]["results"]
            assert runs == []

            # A link on another site leads here, though its first request brings no cookie.
            driver.delete_all_cookies()
            for site in ("127.0.0.1", "localhost"):
                driver.get(f"http://{site}:{foreign}/")
                browser.click("//a[@id='link']")
                browser.until(lambda: driver.current_url.startswith(f"{ui.address}/"))
                browser.see("//a[contains(@href,'/runs')]")
                assert "token" not in driver.current_url
            driver.get(f"http://localhost:{foreign}/")
            browser.click("//a[@id='runs']")
            browser.click("//a[text()='Go on']")
            browser.see("//*[contains(text(),'No runs')]")

            started = ui.ask(LAUNCH_NOW)["launchRun"]
            assert started["__typename"] == "LaunchRunSuccess", started
        finally:
            browser.screenshot(pictures / "last.png")
            browser.close()

"""A headless Chromium on a report: a file that a person opened by a double click."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pypdfium2
from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from contextcliff_dagster_tests.support.browser import FLAGS, PATIENCE_S
from contextcliff_dagster_tests.support.requirements import axe, chromedriver, chromium

PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}


class ReportBrowser:
    """One window; `open` begins anew."""

    def __init__(self) -> None:
        options = Options()
        options.binary_location = str(chromium())
        for flag in (*FLAGS, "--hide-scrollbars"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(chromedriver())))

    def close(self) -> None:
        self.driver.quit()

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A command of Chromium's DevTools."""
        result: dict[str, Any] = self.driver.execute_cdp_cmd(name, arguments)
        return result

    def open(self, file: Path, *, phone: bool = False, dark: bool = False) -> None:
        self.driver.get("about:blank")
        self.complaints()
        if phone:
            self.command("Emulation.setDeviceMetricsOverride", **PHONE)
        else:
            self.command("Emulation.clearDeviceMetricsOverride")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(file.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def until(self, what: Callable[[], Any]) -> Any:
        """What ``what`` returns, once that is true: a page draws when it likes."""
        ignored = [NoSuchElementException, StaleElementReferenceException]
        return WebDriverWait(self.driver, PATIENCE_S, ignored_exceptions=ignored).until(
            lambda _: what()
        )

    def reads(self, css: str, *words: str) -> str:
        """The text of an element, once it is displayed with ``words`` in it."""

        def read() -> str:
            shown = self.one(css)
            text = shown.text if shown.is_displayed() else ""
            return text if all(word in text for word in words) else ""

        try:
            return str(self.until(read))
        except TimeoutException as late:
            text = self.run("return document.querySelector(arguments[0])?.innerText", css)
            raise AssertionError(f"{words} are not in {css}: {text}") from late

    def point_at(self, element: WebElement) -> None:
        ActionChains(self.driver, duration=0).move_to_element(element).perform()

    def click(self, element: WebElement) -> None:
        """Click where ``element`` is, whatever lies on top of it."""
        ActionChains(self.driver, duration=0).move_to_element(element).click().perform()

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def complaints(self) -> list[str]:
        """Messages of the console and addresses asked for since the last look; both ought to be
        none but the page itself."""
        found = [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"]
                own = address.startswith(("data:", "about:")) or address == self.driver.current_url
                if not own:
                    found.append(address)
        return found

    def words_on_a4(self) -> str:
        """The words of the page as PDF, which must be A4, the paper that it asks for."""
        printed = self.command("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        paper = pypdfium2.PdfDocument(base64.b64decode(printed["data"]))
        assert {tuple(map(round, sheet.get_size())) for sheet in paper} == {(595, 842)}
        return " ".join(
            " ".join(sheet.get_textpage().get_text_bounded().split()) for sheet in paper
        )

    @contextmanager
    def without_scripts(self) -> Iterator[None]:
        self.command("Emulation.setScriptExecutionDisabled", value=True)
        try:
            yield
        finally:
            self.command("Emulation.setScriptExecutionDisabled", value=False)

    def accessibility(self) -> list[str]:
        """What axe-core objects to: rule, and the first element that breaks it."""
        script = axe()
        assert script is not None
        self.run(script.read_text(encoding="utf-8"))
        self.driver.set_script_timeout(PATIENCE_S)
        found = self.driver.execute_async_script(
            "const done = arguments[0], failed = (e) => done([{id: String(e), nodes: []}]);"
            "axe.run().then((result) => done(result.violations), failed);"
        )
        return [f"{one['id']}: {[node['html'] for node in one['nodes'][:2]]}" for one in found]

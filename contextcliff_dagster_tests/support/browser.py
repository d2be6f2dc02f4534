"""A headless Chromium on the Dagster UI: what a person would click, and what they would see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from contextcliff_dagster_tests.support.dagster_ui import DagsterUi
from contextcliff_dagster_tests.support.requirements import chromedriver, chromium

PATIENCE_S = 300
"""Of one look at the page: machines that run the tests may be slow."""
_CLICKABLE = """
const element = document.evaluate(arguments[0], document, null, 9, null).singleNodeValue;
if (!element || element.disabled) return null;
element.scrollIntoView({block: "center"});
const {x, y, width, height} = element.getBoundingClientRect();
return element.contains(document.elementFromPoint(x + width / 2, y + height / 2)) ? element : null;
"""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1500,1100",
)


class Browser:
    """One window on the UI, which was opened by its link."""

    def __init__(self, ui: DagsterUi, profile: Path) -> None:
        options = Options()
        options.binary_location = str(chromium())
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        self.address = ui.address
        self.driver = webdriver.Chrome(options=options, service=Service(str(chromedriver())))
        # The page redraws itself at will: what vanished while it was read is looked for again.
        self._wait = WebDriverWait(
            self.driver,
            PATIENCE_S,
            ignored_exceptions=[
                NoSuchElementException,
                StaleElementReferenceException,
            ],
        )
        self.driver.get(ui.link)

    def close(self) -> None:
        self.driver.quit()

    def resize(self, width: int, height: int) -> None:
        self.driver.set_window_size(width, height)

    def open(self, path: str) -> None:
        self.driver.get(self.address + path)

    def click(self, xpath: str) -> None:
        """Click once, when the element can be clicked and the page leaves it where it is."""

        def ready() -> WebElement | None:
            element: WebElement | None = self.driver.execute_script(_CLICKABLE, xpath)
            return element

        self.until(lambda: (element := ready()) and element == ready() and element).click()

    def see(self, xpath: str) -> WebElement:
        """The element, once it is displayed."""

        def displayed(driver: Any) -> WebElement | None:
            element = driver.find_element(By.XPATH, xpath)
            return element if element.is_displayed() else None

        found: WebElement = self._until(displayed, xpath)
        return found

    def until(self, what: Callable[[], Any]) -> Any:
        """What ``what`` returns, once that is true."""
        return self._until(lambda driver: what(), "What is waited for")

    def _until(self, what: Callable[[Any], Any], sought: str) -> Any:
        try:
            return self._wait.until(what)
        except TimeoutException as late:
            shown = self.driver.find_element(By.XPATH, "//body").text
            message = f"{sought}: not there within {PATIENCE_S} s. The page shows:\n{shown}"
            raise AssertionError(message) from late

    def screenshot(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))

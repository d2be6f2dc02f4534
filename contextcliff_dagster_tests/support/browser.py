"""A headless Chromium on the Dagster UI: what a person would click, and what they would see."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from contextcliff_dagster_tests.support.dagster_ui import DagsterUi
from contextcliff_dagster_tests.support.requirements import chromedriver, chromium

PATIENCE_S = 120
"""Of one look at the page: machines that run the tests may be slow."""
_DIALOG = "//div[contains(@class,'dagster-dialog')]"
_BUTTON = "//button[contains(normalize-space(.),'{}') and not(@disabled)]"
_LAUNCH = _DIALOG + _BUTTON.format("Launch backfill")
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
        self.ask = ui.ask
        self.driver = webdriver.Chrome(options=options, service=Service(str(chromedriver())))
        # The page redraws itself at will: what vanished under the hand is looked for again.
        self._wait = WebDriverWait(
            self.driver,
            PATIENCE_S,
            ignored_exceptions=[
                ElementClickInterceptedException,
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
        def found(driver: Any) -> bool:
            driver.find_element(By.XPATH, xpath).click()
            return True

        self._until(found, xpath)

    def click_button(self, text: str, within: str = "") -> None:
        self.click(within + _BUTTON.format(text))

    def see(self, xpath: str) -> WebElement:
        """The element, once it is displayed."""

        def displayed(driver: Any) -> WebElement | None:
            element = driver.find_element(By.XPATH, xpath)
            return element if element.is_displayed() else None

        found: WebElement = self._until(displayed, xpath)
        return found

    def until(self, what: Callable[[], Any]) -> Any:
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

    def launch_job(self, job: str) -> None:
        """Launch ``job`` for all its partitions from its own page."""
        self.open(f"/locations/contextcliff_dagster/jobs/{job}")
        self.click_button("Materialize all")
        self.launch_all_partitions()

    def launch_all_partitions(self) -> None:
        """Choose all keys of both dimensions in the open dialog, and launch the backfill.

        The dialog forgets what is chosen before it has read the keys: chosen until it may launch.
        """

        def launched(driver: Any) -> bool:
            for number in (1, 2):
                every = f"({_DIALOG}//button[normalize-space(.)='All'])[{number}]"
                driver.find_element(By.XPATH, every).click()
            driver.find_element(By.XPATH, _LAUNCH).click()
            return True

        self._until(launched, _LAUNCH)

    def backfill(self, asset: str, *choices: tuple[str, tuple[str, ...]]) -> None:
        """Backfill the named keys of each partition dimension of ``asset`` from its own page."""
        self.open(f"/assets/{asset}")
        self.click_button("Materialize")
        for dimension, keys in choices:
            row = f"{_DIALOG}//span[normalize-space(.)='{dimension}']/ancestor::div[2]"
            self.click(f"{row}//div[contains(@class,'TagSelector_placeholder')]")
            for key in keys:
                menu = "//div[contains(@class,'dagster-popover')]"
                self.click(f"{menu}//div[@title='{key}']")
            self.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        self.click(_LAUNCH)

    def wait_for_backfills(self, count: int, within_s: float = 600) -> None:
        """Until ``count`` backfills have been asked for and the last is done.

        Raises:
            AssertionError: the last backfill failed, or it took longer.
        """
        deadline = time.monotonic() + within_s
        query = "{partitionBackfillsOrError{...on PartitionBackfills{results{status}}}}"
        found: list[str] = []
        while time.monotonic() < deadline:
            results = self.ask(query)["partitionBackfillsOrError"]["results"]
            found = [r["status"] for r in results]
            if len(found) == count and found[0].startswith(("COMPLETED", "FAILED", "CANCELED")):
                assert found[0] in ("COMPLETED", "COMPLETED_SUCCESS"), found
                return
            time.sleep(1)
        raise AssertionError(f"{count} backfills were not done within {within_s:.0f} s: {found}")

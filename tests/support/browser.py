"""A browser without a window, and what a page must not do in it."""

import json
import os
import shutil
import time
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

# Violations of these kinds keep people from using a page.
GRAVE = ("serious", "critical")


def open_browser():
    """Start Chromium, with everything that it asks of the network and says on its console noted."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options, Service(shutil.which("chromedriver")))


def set_scheme(driver, scheme):
    """Let the page believe that its user wants a light or a dark one."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def set_width(driver, width, height=900):
    """Give the page a window of so many pixels, as a phone has it."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def visit(driver, address, drawn, seconds=20):
    """Open a page with nothing noted before, and wait for an element that it draws."""
    requests(driver), complaints(driver)
    set_width(driver, 1280)
    driver.get(address)
    WebDriverWait(driver, seconds).until(lambda d: d.find_elements(By.CSS_SELECTOR, drawn))
    return driver


def rows(driver, table):
    """List the texts of a table's cells, row by row."""
    return [
        [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th,td")]
        for row in driver.find_elements(By.CSS_SELECTOR, f"#{table} tbody tr")
    ]


def requests(driver):
    """List what the page has asked for since the last call, but for what it holds itself."""
    found = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(("data:", "blob:")):
                found.append(url)
    return found


def complaints(driver):
    """List errors and warnings on the console since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]


def violations(driver):
    """List what axe finds grave about the page, by rule and place."""
    import axe_core_python

    (script,) = Path(axe_core_python.__file__).parent.rglob("axe.min.js")
    driver.execute_script(script.read_text())
    report = driver.execute_async_script("axe.run().then(arguments[0])")
    return [
        (found["id"], node["target"])
        for found in report["violations"]
        if found["impact"] in GRAVE
        for node in found["nodes"]
    ]


def expect_readable(driver, name, height=900):
    """Expect that a page fits a phone and a desk, and that axe finds nothing grave on either."""
    for width in (375, 1280):
        set_width(driver, width, height)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        keep_picture(driver, f"{name}-{width}")
        assert violations(driver) == []


def try_again(what):
    """Do what looks for an element and uses it, again where the page has replaced it meanwhile."""
    for _ in range(50):
        try:
            return what()
        except StaleElementReferenceException:
            time.sleep(0.05)
    return what()


def keep_picture(driver, name):
    """Save what is seen, where somebody has asked for it."""
    folder = os.environ.get("JAXMARL_PPO_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(Path(folder) / f"{name}.png"))

"""A browser for each module that tests pages in one."""

import pytest


@pytest.fixture(scope="module")
def driver():
    from browser import open_browser  # needs selenium, which few tests do

    browser = open_browser()
    yield browser
    browser.quit()

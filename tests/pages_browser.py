"""Uses the pages in a folder as a reader would, in Chromium: python pages_browser.py FOLDER.

Steps advance by keyboard and by slider, no page logs an error or asks for anything, texts can be
read in light and dark, nothing is cut off at phone and desktop widths, and print has no controls.
"""
import base64
import json
import pathlib
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}


def check(holds, what):
    if not holds:
        sys.exit(f"pages: {what}")


class Page:
    def __init__(self, driver, path):
        self.driver = driver
        self.name = path.stem
        driver.get(path.as_uri())
        self.body = driver.find_element(By.TAG_NAME, "body")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, name):
        return self.driver.find_element(By.ID, name).text

    def press(self, *keys):
        for key in keys:
            self.body.send_keys(key)

    def wait(self, holds, what):
        for _ in range(100):
            if holds():
                return
            time.sleep(0.05)
        check(False, f"{self.name}: {what}")

    def check(self, holds, what):
        check(holds, f"{self.name}: {what}")


def start():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def show(driver, width, height, scheme="light", media=""):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})


def screenshot(page, folder, name, width):
    height = page.js("return document.documentElement.scrollHeight")
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    page.driver.save_screenshot(str(folder / f"{page.name}-{name}.png"))


# Contrast by WCAG 2.2 between an element's text and what lies behind it.
CONTRAST = """
const parts = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll(arguments[0])].filter((e) => e.offsetParent && e.textContent)
    .map((e) => {
      const a = light(parts(getComputedStyle(e).color)), b = light(behind(e));
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 80)];
    });
"""


def check_looks(page, folder):
    for device, (width, height) in WIDTHS.items():
        for scheme in ("light", "dark"):
            show(page.driver, width, height, scheme)
            wide = page.js("return document.documentElement.scrollWidth")
            page.check(wide <= width, f"is {wide} wide on a {device} of {width}")
            for contrast, element in page.js(
                    CONTRAST, "p, h1, h2, li, td, th, summary, button, b, figcaption, #where"):
                page.check(contrast >= 4.5, f"{scheme}: contrast {contrast:.1f} of {element}")
            screenshot(page, folder, f"{device}-{scheme}", width)
    show(page.driver, *WIDTHS["desktop"], media="print")
    shown = page.js("return [...document.querySelectorAll('.screen')]"
                    ".filter((e) => getComputedStyle(e).display !== 'none').length")
    page.check(shown == 0, "prints its controls")
    pdf = page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    (folder / f"{page.name}.pdf").write_bytes(base64.b64decode(pdf["data"]))
    show(page.driver, *WIDTHS["desktop"])


def check_quiet(page):
    """No errors, and nothing but the page itself was asked for."""
    for entry in page.driver.get_log("browser"):
        page.check(False, f"logs {entry['message']}")
    for entry in page.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            page.check(url.startswith(("file:", "data:")), f"asks for {url}")


def check_player(page):
    run = json.loads(page.js("return document.getElementById('run').textContent"))
    last = len(run["steps"]) - 1
    step = lambda: int(page.js("return document.getElementById('slider').value"))
    shown = lambda: page.js("return [...document.querySelectorAll('#answer b')]"
                            ".filter((e) => !e.hidden).map((e) => e.textContent).join('')")
    page.check(step() == 0, "does not begin with the prompt")
    pieces = ["".join(s["pieces"]) for s in run["steps"]]

    seen = [page.text("where")]
    page.press(Keys.ARROW_RIGHT)
    while page.text("where") != seen[-1]:  # the last moment is the end
        seen.append(page.text("where"))
        page.check(len(seen) < 1000, "never comes to an end")
        page.press(Keys.ARROW_RIGHT)
    moments = sum(4 if len(s["nodes"]) > 1 else 1 for s in run["steps"])
    page.check(len(set(seen)) == moments, f"shows {len(set(seen))} of {moments} moments")
    page.check(shown() == "".join(pieces), "does not end with the whole text")
    page.press(Keys.ARROW_LEFT)
    page.check(page.text("where") == seen[-2], "does not go back")
    page.press(Keys.HOME)
    page.check(step() == 0 and shown() == pieces[0], "Home does not go to the prompt")
    page.press(Keys.PAGE_DOWN, Keys.PAGE_DOWN)
    page.check(step() == 2 and shown() == "".join(pieces[:3]), "Page Down is no step")
    page.press(Keys.PAGE_UP)
    page.check(step() == 1, "Page Up is no step")

    # Each step's figures are those of the record, told in words too.
    for number, record in enumerate(run["steps"]):
        page.js("const s = document.getElementById('slider'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('input'))", number)
        page.check(shown() == "".join(pieces[:number + 1]), f"slider shows another step {number}")
        boxes = page.js("return document.querySelectorAll('#tree rect').length")
        page.check(boxes == len(record["nodes"]) + 1, f"step {number}: draws {boxes} nodes")
        for fate in ("accepted", "rejected", "not reached", "probe"):
            drawn = page.js("return document.querySelectorAll('#tree g.' + arguments[0]).length",
                            fate.replace(" ", "_"))
            wanted = sum(node["fate"] == fate for node in record["nodes"])
            page.check(drawn == wanted, f"step {number}: {drawn} {fate}, not {wanted}")
        words = page.js("return document.querySelector('#tree svg desc').textContent")
        page.check(len(words.splitlines()) == boxes, f"step {number}: is not told in words")
        kept = page.js("return document.querySelectorAll('#cells .kept').length")
        page.check(kept == record["kv_kept"] - record["trunk"] + 1 + (record["trunk"] > 1),
                   f"step {number}: keeps {kept} rows")
        asked = page.js("return [...document.querySelectorAll('#asked li')].map((e) => e.textContent)")
        page.check(asked == [a["says"] for a in record["asked"]], f"step {number}: other questions")

    # The clock of the last moment is the sum of what was measured.
    page.press(Keys.END)
    total = sum(sum(s["ms"].values()) for s in run["steps"] if not s["prefill"])
    page.check(abs(float(page.text("clock").split()[0]) - total) < 0.06, "sums to another time")

    # By keyboard alone: Tab reaches everything, the slider has its own arrows, Space and R play.
    page.press(Keys.HOME)
    page.js("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(page.js("return document.activeElement.id"))
    page.check({"play", "next", "race", "slider", "tree", "answer"} <= reached,
               f"Tab reaches {sorted(reached)} alone")
    page.driver.find_element(By.ID, "slider").send_keys(Keys.ARROW_RIGHT)
    page.check(step() == 1, "the slider does not move by its arrows")
    page.js("document.activeElement.blur()")
    before = page.text("where")
    page.press(Keys.SPACE)
    page.wait(lambda: page.text("where") != before, "Space does not play")
    page.press(Keys.SPACE)
    page.press(Keys.HOME, "r")
    page.wait(lambda: float(page.text("clock").split()[0]) > 0, "R does not race")
    page.press("r")
    page.press(Keys.END)
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    page.check(page.text("steps").count("\n") >= last, "prints no table of the steps")
    page.js("document.querySelectorAll('details').forEach((e) => e.open = false)")
    page.press(Keys.HOME, *[Keys.PAGE_DOWN] * min(3, last))


def check_report(page):
    figures = page.js("return [...document.querySelectorAll('figure svg')].map((e) => "
                      "[e.getAttribute('role'), e.querySelector('title').textContent, "
                      "e.querySelector('desc').textContent])")
    page.check(len(figures) >= 6, f"has {len(figures)} plots")
    for role, title, words in figures:
        page.check(role == "img" and title and len(words) > 20, f"{title}: is not told in words")
    ids = page.js("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    page.check(len(ids) == len(set(ids)), "has an id twice")
    page.check(page.js("return document.querySelectorAll('table').length") >= 5, "lacks tables")


def main():
    folder = pathlib.Path(sys.argv[1])
    driver = start()
    try:
        pages = sorted(folder.glob("*.html"))
        check(pages, f"{folder} holds no pages")
        for path in pages + [folder / "report" / "report.html"]:
            show(driver, *WIDTHS["desktop"])
            page = Page(driver, path)
            if path.stem == "report":
                check_report(page)
            else:
                check_player(page)
            check_looks(page, folder)
            check_quiet(page)
            print(f"pages: {page.name}: good")
    finally:
        driver.quit()


if __name__ == "__main__":
    main()

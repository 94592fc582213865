"""The page of a run: everything in one file, nothing believed, nothing half-written."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from thalweg.core.files import write_whole
from thalweg.report import write_report
from thalweg.report.files import read_folder

CLASSES = {
    "classifier": "a <b>classifier</b>",
    "classifier_accuracy": 0.99,
    "mean_top_probability": 0.9123,
    "mean_top_probability_held_out": 0.9876,
    "class_shares": [0.25, 0.75],
    "labels": ["cat", "dog"],
    "classes_covered": 2,
    "classes": 2,
    "samples": 20,
}
RESULTS = {"updates": 30, "training_seconds": 192.0, "chains": 20, "sampling_seconds": 2.5, "classes": CLASSES}
CONFIG = 'name = "<script>alert(1)</script>"\n[data]\nname = "digits & $title"\n'


class Outline(HTMLParser):
    """Tags, their attributes, and the text of headings."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attributes]

    def handle_data(self, data):
        self.text += data
        if self.tags and self.tags[-1] in ("h1", "h2") and data.strip():
            self.headings.append(data)


def arrays(event=(8, 8, 1)) -> dict[str, np.ndarray]:
    random, steps = np.random.default_rng(0), np.array([0, 1, 4, 9])
    return {
        "x": random.uniform(-1, 1, (20, *event)),
        "path": random.uniform(-1, 1, (4, 3, *event)),
        "path_steps": steps,
        "energy_trace": random.normal(size=(3, 4)),
        "energy_data": random.normal(size=40),
        "energy_test": random.normal(size=30),
        "energy_samples": random.normal(size=20),
    }


def make_run(folder):
    (folder / "samples").mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    rows = [{"step": step, "loss": 1 / step, "energy_gap": 1 / step, "gradient_norm": 2.0} for step in range(1, 31)]
    rows.insert(10, {"evaluation": True, "step": 10, "coverage": 0.5})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    np.savez(folder / "samples" / "samples.npz", **arrays())
    (folder / "results.json").write_text(json.dumps(RESULTS))
    return folder


@pytest.fixture
def run(tmp_path):
    """A run of one's own to damage."""
    return make_run(tmp_path / "run")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """The page of a whole run, to look at."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "a <run>")
    assert write_report(folder) == folder / "report.html"
    return (folder / "report.html").read_text(encoding="utf-8")


def words(page: str) -> str:
    return " ".join(Outline(page).text.split())


def test_every_section_is_there(page):
    outline = Outline(page)
    sections = ["Samples", "Classes", "Evaluation", "Training", "Energies", "Chain", "Numbers", "Configuration"]
    assert outline.headings == ["a <run>", *sections]
    images = [value for name, value in outline.attributes if name == "src"]
    assert len(images) == 5
    for image in images:
        assert base64.b64decode(image.removeprefix("data:image/png;base64,"))[1:4] == b"PNG"


def test_the_measured_numbers_come_first_in_words(page):
    text = words(page)
    assert "Samples drawn from fresh noise, not from the buffer, cover all 2 classes" in text
    assert "probability of 0.912 under a classifier trained on the real data; held-out real data get 0.988" in text
    assert text.index("0.988") < text.index("Where chains that started")
    assert "3 min 12 s" in text
    assert "30 updates" in text


def test_missing_classes_are_said(tmp_path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "results.json").write_text(json.dumps({"classes": CLASSES | {"classes_covered": 1}}))
    assert "cover 1 of 2 classes" in words(write_report(tmp_path).read_text(encoding="utf-8"))


def test_the_file_needs_nothing_else(page):
    outline = Outline(page)
    assert not {"script", "link", "iframe", "object"} & set(outline.tags)
    references = [value for name, value in outline.attributes if name in ("src", "srcset", "href", "data")]
    assert references
    assert all(value.startswith("data:image/png;base64,") for value in references)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert "url(" not in page
    assert "@import" not in page


def test_nothing_in_the_folder_is_believed(page):
    assert "<script" not in page
    assert "<b>" not in page
    # the configuration is shown letter by letter, placeholders of the template included
    assert CONFIG.strip() in Outline(page).text
    assert "<title>a &lt;run&gt;</title>" in page


def test_both_light_and_dark_are_drawn(page):
    assert page.count('media="(prefers-color-scheme: dark)"') == page.count("<img")


def test_what_is_not_there_yet_is_said(tmp_path):
    (tmp_path / "config.toml").write_text("")
    text = words(write_report(tmp_path).read_text(encoding="utf-8"))
    missing = ("no samples", "No samples", "Not evaluated yet", "No numbers of training", "No energies", "No chain")
    for what in (*missing, "No results"):
        assert what in text


@pytest.mark.parametrize("event", [(1,), (2,), (5,)])
def test_points_of_other_kinds_have_a_page(run, event):
    np.savez(run / "samples" / "samples.npz", **arrays(event), data=np.ones((9, *event)))
    (run / "results.json").unlink()
    (run / "metrics.jsonl").unlink()
    text = words(write_report(run).read_text(encoding="utf-8"))
    assert "20 samples drawn from fresh noise" in text
    assert "Real data beside them" in text


def test_the_page_is_the_same_every_time_and_replaces_the_old_one(run):
    (run / "samples" / "samples.npz").unlink()
    before = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == before
    assert not list(run.glob("*.part"))


def test_a_line_that_is_being_written_is_left_out(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 31, "lo')
    folder = read_folder(run)
    assert folder.history["loss"][0].tolist() == list(range(1, 31))
    assert folder.evaluations["coverage"][1].tolist() == [0.5]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.toml", b"a = = 1", "config.toml: expected TOML"),
        ("config.toml", b"\xff\xfe", "config.toml: expected TOML"),
        ("metrics.jsonl", b'{"st\n{"step": 1, "loss": 2.0}\n', "on line 1; remove that line"),
        ("metrics.jsonl", b'{"loss": 2.0}\n', "expected a JSON object with a step"),
        ("metrics.jsonl", b"[1]\n", "expected a JSON object with a step"),
        ("metrics.jsonl", b'{"step": 1, "loss": "low"}\n', "got no number under 'loss' on line 1"),
        ("metrics.jsonl", b'{"step": [1], "loss": 2.0}\n', "got no update's number on line 1"),
        ("results.json", b"{", "results.json: expected JSON"),
        ("results.json", b"[1]", "expected an object of numbers"),
        ("samples/samples.npz", b"PK\x03\x04 cut short", "samples.npz: expected arrays"),
        ("samples/samples.npz", b"", "samples.npz: expected arrays"),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(run, name, content, complaint):
    (run / name).write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        write_report(run)
    assert not (run / "report.html").exists()


def test_what_the_doctor_found_is_said_first(run):
    results = json.loads((run / "results.json").read_text())
    finding = {"name": "energy_gap", "since": 7, "words": "expected a gap < 3", "stops": False}
    (run / "results.json").write_text(json.dumps({**results, "findings": [finding]}))
    page = write_report(run).read_text()
    said = page.index("This training finished, but something is wrong.")
    assert said < page.index("expected a gap &lt; 3") < page.index('class="lead"') and page.count("a gap &lt; 3") == 1
    (run / "results.json").write_text(json.dumps({**results, "findings": []}))
    assert 'class="findings"' not in write_report(run).read_text()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a run folder, got one without config\.toml"):
        write_report(tmp_path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    with pytest.raises(ValueError, match="expected to write it"):
        write_whole(tmp_path / "there", b"new")  # a folder of that name is in the way
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


ROW = {
    "metric": "log_likelihood",
    "name": "log_likelihood",
    "value": -1.16241,
    "low": -1.19411,
    "high": -1.13072,
    "confidence": 0.95,
    "method": "20 test rows, log Z by <quadrature>",
    "remark": "",
}


def evaluate(run, *rows, updates=30, **entry):
    """Write rows as an evaluation of the run."""
    metrics = {"log_likelihood": {"digest": "d", "model": "m", "date": "today", "rows": list(rows)}} | entry
    results = {**RESULTS, "evaluation": {"updates": updates, "metrics": metrics}}
    (run / "results.json").write_text(json.dumps(results))
    return words(write_report(run).read_text(encoding="utf-8"))


def test_the_log_likelihood_is_said_with_its_interval(run):
    text = evaluate(run, ROW)
    assert "Test log-likelihood: -1.162 nats per row, 95 % interval [-1.194, -1.131]; 20 test rows, log Z by" in text
    # in the head of the page too, and not a second time among the numbers
    assert (
        text.index("Test log-likelihood-1.162[-1.194, -1.131], nats per row") < text.index("Samples Where")
        and "evaluation.metrics" not in text
    )
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.count('alt="Intervals"') == 1 and "<quadrature" not in page
    assert "evaluate it again" not in text


def test_why_there_is_no_log_likelihood_is_said(run):
    text = evaluate(run, {"name": "log_likelihood", "value": None, "remark": "Z is infinite"})
    assert "No test log-likelihood: Z is infinite." in text


def test_numbers_of_training_rows_and_of_earlier_updates_are_called_so(run):
    text = evaluate(run, ROW | {"method": "20 training rows, log Z by quadrature"}, updates=10)
    assert "Log-likelihood of training rows: -1.162" in text and "Test log-likelihood" not in text
    assert "These are the numbers after 10 updates; the run now has 30: evaluate it again." in text


def test_curves_are_drawn_of_the_rows_that_are_shown(run):
    curve = np.linspace(0, 1, 5)
    energies = {"roc_inside": curve, "roc_outside": curve, "inside": np.arange(20.0), "outside": np.arange(20.0) + 5}
    bins = {"edges": np.linspace(0, 1, 4), "count": np.array([3, 4, 5])}
    bins |= {"confidence": curve[1:4], "accuracy": curve[:3]}
    for digest, drawn in (("d", 2), ("other", 0)):
        stored = {f"ood rings/{name}": array for name, array in {**energies, "digest": np.array(digest)}.items()}
        stored |= {f"calibration/{name}": array for name, array in {**bins, "digest": np.array(digest)}.items()}
        np.savez(run / "samples" / "evaluation.npz", **stored)
        entry = {"digest": "d", "rows": [{"name": "auroc rings", "value": 0.9}]}
        evaluate(run, ROW, **{"ood rings": entry, "calibration": entry})
        page = (run / "report.html").read_text(encoding="utf-8")
        assert page.count("ROC curve against rings") + page.count("Reliability diagram") == drawn
        assert page.count("Energies against rings") == drawn // 2


@pytest.mark.parametrize("block", [3, {}, {"metrics": 3}, {"metrics": {"a": 3}}, {"metrics": {"a": {"rows": [3]}}}])
def test_an_evaluation_of_another_kind_is_left_out(run, block):
    (run / "results.json").write_text(json.dumps({**RESULTS, "evaluation": block}))
    assert "Not evaluated yet" in words(write_report(run).read_text(encoding="utf-8"))

// Plays the run that stands in the page. A frame is a moment of a step: draft, verify, judge, keep.
"use strict";

const run = JSON.parse(document.getElementById("run").textContent);
const $ = (id) => document.getElementById(id);
const STAGES = ["draft", "verify", "judge", "keep"];
const WORDS = {draft: "Draft", verify: "Verify", judge: "Judge", keep: "Keep"};
const DWELL = {draft: 1100, verify: 800, judge: 1300, keep: 1100};  // ms of a frame while it plays
const RACE_MS = 12000;  // that a race lasts on the page

// ---- Time: zero is the first token, which both get from their prefill ----

const phases = (step) => [step.ms.draft, step.ms.target, step.ms.judge, step.ms.other];
const sum = (values) => values.reduce((a, b) => a + b, 0);
const ends = [];  // when each step of the method was done
const starts = [];
let total = 0;
for (const step of run.steps) {
  starts.push(total);
  if (!step.prefill) total += sum(phases(step));
  ends.push(total);
}
const baselineEnds = [0];  // when the baseline had its k-th token, from the first
for (const ms of run.baseline_ms) baselineEnds.push(baselineEnds[baselineEnds.length - 1] + ms);
const horizon = Math.max(total, baselineEnds[baselineEnds.length - 1]) || 1;

const emittedUpTo = [];
run.steps.reduce((tokens, step, i) => (emittedUpTo[i] = tokens + step.emitted), 0);

function methodTokensAt(time) {
  let tokens = 0;
  for (let i = 0; i < ends.length && ends[i] <= time + 1e-9; ++i) tokens = emittedUpTo[i];
  return tokens;
}
function baselineTokensAt(time) {
  let tokens = 0;
  while (tokens < baselineEnds.length && baselineEnds[tokens] <= time + 1e-9) ++tokens;
  return tokens;
}

// ---- Frames ----

const frames = [];
run.steps.forEach((step, i) => {
  for (const stage of step.nodes.length > 1 ? STAGES : ["keep"]) frames.push({step: i, stage});
});
const lastFrameOf = (step) => frames.findIndex((f) => f.step === step && f.stage === "keep");

function clockOf(frame) {
  const step = run.steps[frame.step];
  if (step.prefill) return 0;
  const upTo = STAGES.indexOf(frame.stage) + 1;
  return starts[frame.step] + sum(phases(step).slice(0, upTo));
}

// ---- The panels ----

const answer = $("answer");
const pieces = [];  // {element, step}
{
  answer.append(html("span", "prompt", run.prompt + (run.prompt.endsWith("\n") ? "" : "\n")));
  run.steps.forEach((step, i) => step.pieces.forEach((text, k) => {
    const element = html("b", k < step.path.length ? "drafted" : "target", text);
    answer.append(element);
    pieces.push({element, step: i});
  }));
}

function showAnswer(frame) {
  const done = frame.stage === "keep" ? frame.step : frame.step - 1;
  let last = null;
  for (const piece of pieces) {
    piece.element.hidden = piece.step > done;
    piece.element.classList.toggle("now", piece.step === frame.step);
    if (!piece.element.hidden) last = piece.element;
  }
  if (last) {
    const below = last.offsetTop - answer.offsetTop + last.offsetHeight - answer.clientHeight;
    answer.scrollTop = Math.max(0, below + 12);
  }
}

function drawTracks() {
  const bar = (parent, at, width, className) => parent.append(svg("rect", {
    x: 1000 * at / horizon, y: 0, width: Math.max(0, 1000 * width / horizon - 0.4), height: 10,
    class: className}));
  const track = () => svg("svg", {viewBox: "0 0 1000 10", preserveAspectRatio: "none",
                                  "aria-hidden": "true"});
  const method = track();
  run.steps.forEach((step, i) => {
    if (step.prefill) return;
    let at = starts[i];
    phases(step).forEach((width, k) => {
      bar(method, at, width, ["draft", "target-pass", "judge", "other"][k]);
      at += width;
    });
  });
  const baseline = track();
  run.baseline_ms.forEach((width, i) => bar(baseline, baselineEnds[i], width, "target-pass"));
  for (const [id, picture] of [["track-method", method], ["track-baseline", baseline]]) {
    $(id).append(picture, html("div", "veil"));
  }
}

function showRace(time) {
  for (const id of ["track-method", "track-baseline"]) {
    $(id).lastChild.style.left = 100 * time / horizon + "%";
  }
  const mine = methodTokensAt(time), theirs = baselineTokensAt(time);
  $("count-method").textContent = count(mine, "token");
  $("count-baseline").textContent = count(theirs, "token");
  $("clock").textContent = ms(time);
  const ahead = mine - theirs;
  const whole = baselineEnds[emittedUpTo[emittedUpTo.length - 1] - 1];
  const verdict = whole && total
      ? ` Over the whole text: ${ms(total)} for ${ms(whole)}, ${(whole / total).toFixed(2)} times as fast.` : "";
  $("score").textContent = (ahead > 0 ? `${run.method} is ${count(ahead, "token")} ahead.`
      : ahead < 0 ? `The baseline is ${count(-ahead, "token")} ahead.` : "They are level.") + verdict;
}

const CAPTIONS = {
  draft: (step) => {
    const probes = step.nodes.filter((n) => n.role === "probe").length;
    const drafts = step.nodes.length - 1 - probes;
    const cut = step.proposed - drafts;
    return `${run.method} hangs ${count(drafts, "guess").replace("guesss", "guesses")}` +
        (probes ? ` and ${count(probes, "probe")}` : "") + ` under the last certain token` +
        (cut > 0 ? `; ${cut} more were not worth a row to the budget` : "") +
        `. It took ${ms(step.ms.draft)}.`;
  },
  verify: (step) => `One pass of the target over ${count(step.rows, "row")} gives p behind every ` +
      `node: ${ms(step.ms.target)}.`,
  judge: (step) => `The rule ${run.rule} walks down from the root: ` +
      `${step.path.length} of ${count(step.nodes.filter((n) => n.role === "verify").length - 1, "guess")
        .replace("guesss", "guesses")} accepted, then the target's own token.`,
  keep: (step) => (step.prefill ? "The prompt was computed, and the target gave its first token. " : "") +
      `${count(step.emitted, "token")} joined the text` +
      (step.prefill ? "." : ` after ${ms(sum(phases(step)))}` +
      (step.nodes.length === 1 ? ", without a draft." : ".")),
};

function showStep(frame) {
  const step = run.steps[frame.step];
  $("h-step").textContent = `Step ${frame.step}` + (step.prefill ? ": the prompt" : "");
  const drafted = step.nodes.length > 1;
  $("stages").replaceChildren(...STAGES.filter((s) => drafted || s === "keep").map((stage) => {
    const item = html("li", "", WORDS[stage]);
    if (stage === frame.stage) item.setAttribute("aria-current", "step");
    return item;
  }));
  $("caption").textContent = CAPTIONS[frame.stage](step);
  drawTree(step, frame.stage);
  $("outline").textContent = outline(step, frame.stage);
  showAsked(step, frame.stage);
  showCells(step, frame.stage);
  document.querySelectorAll("#steps tbody tr").forEach((row, i) => {
    if (i === frame.step) row.setAttribute("aria-current", "step");
    else row.removeAttribute("aria-current");
  });
}

function showAsked(step, stage) {
  const judged = stage === "judge" || stage === "keep";
  $("asked").replaceChildren(...(judged ? step.asked.map((asked) => html("li", "", asked.says))
                                        : [html("li", "muted", "nothing yet")]));
}

function showCells(step, stage) {
  const judged = stage === "judge" || stage === "keep";
  const verified = stage !== "draft";
  const cells = [];
  if (step.first_position > 0) cells.push(html("span", "old", count(step.first_position, "earlier row")));
  if (step.trunk > 1) cells.push(html("span", judged ? "kept" : "", count(step.trunk - 1, "row") + " of the prompt"));
  const kept = new Set([0, ...step.path.slice(0, Math.max(0, step.emitted - 1))].map((n) => step.nodes[n].row));
  const seen = new Set();
  for (const node of step.nodes) {
    if (!verified || seen.has(node.row)) continue;
    seen.add(node.row);
    cells.push(html("span", !judged ? "" : kept.has(node.row) ? "kept" : "dropped", visible(node.text)));
  }
  $("kv-says").textContent = judged
      ? `${step.kv_kept} of this step's ${count(step.rows, "row")} kept; the cache holds ${step.first_position + step.kv_kept}.`
      : verified ? `The pass wrote ${count(step.rows, "row")} behind the ${step.first_position} that are certain.`
      : `The cache holds ${count(step.first_position, "row")}.`;
  $("cells").replaceChildren(...cells);
}

function listSteps() {
  const body = document.querySelector("#steps tbody");
  run.steps.forEach((step, i) => {
    const row = document.createElement("tr");
    const button = html("button", "", String(i));
    button.setAttribute("aria-label", "Go to step " + i);
    button.addEventListener("click", () => { stop(); go(lastFrameOf(i)); });
    const first = document.createElement("td");
    first.append(button);
    const judged = step.nodes.filter((n) => n.role === "verify").length - 1;
    row.append(first);
    for (const value of [Math.max(step.proposed, judged), judged, step.path.length, step.rows, step.emitted,
                         sum(phases(step)).toFixed(2)]) {
      row.append(html("td", "", String(value)));
    }
    row.append(html("td", "text said", JSON.stringify(step.pieces.join("")).slice(1, -1)));
    body.append(row);
  });
}

// ---- The player ----

let now = -1;      // index into frames
let timer = null;  // of Play
let racing = null; // {from, since} while the race runs

function go(index) {
  index = Math.min(Math.max(index, 0), frames.length - 1);
  if (index !== now) {
    now = index;
    showStep(frames[now]);
    showAnswer(frames[now]);
  }
  const {step, stage} = frames[now];
  $("slider").value = step;
  $("slider").setAttribute("aria-valuetext",
      `Step ${step} of ${run.steps.length - 1}, ${WORDS[stage]}: ${run.steps[step].pieces.join("")}`);
  $("where").textContent = `${step} / ${run.steps.length - 1} \u00b7 ${WORDS[stage]}`;
  $("back").disabled = now === 0;
  $("next").disabled = now === frames.length - 1;
  if (!racing) showRace(clockOf(frames[now]));
}

function stop() {
  clearTimeout(timer);
  timer = racing = null;
  $("play").textContent = "Play";
  $("race").textContent = "Race";
}

function play() {
  stop();
  if (now === frames.length - 1) go(0);
  $("play").textContent = "Pause";
  const turn = () => {
    if (now === frames.length - 1) return stop();
    go(now + 1);
    timer = setTimeout(turn, DWELL[frames[now].stage]);
  };
  timer = setTimeout(turn, 300);
}

function race() {
  stop();
  const from = now === frames.length - 1 ? 0 : clockOf(frames[now]);
  racing = {from, since: performance.now()};
  $("race").textContent = "Stop";
  const tick = (moment) => {
    if (!racing) return;
    const time = Math.min(horizon, racing.from + Math.max(0, moment - racing.since) * horizon / RACE_MS);
    let step = 0;
    while (step + 1 < ends.length && ends[step + 1] <= time) ++step;
    go(lastFrameOf(step));
    showRace(time);
    if (time >= horizon) stop();
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function stepBy(direction) {
  stop();
  const {step, stage} = frames[now];
  if (direction < 0 && stage !== "keep") go(lastFrameOf(Math.max(step - 1, 0)));
  else go(lastFrameOf(Math.min(Math.max(step + direction, 0), run.steps.length - 1)));
}

const KEYS = {
  ArrowLeft: () => { stop(); go(now - 1); },
  ArrowRight: () => { stop(); go(now + 1); },
  PageUp: () => stepBy(-1),
  PageDown: () => stepBy(1),
  Home: () => { stop(); go(0); },
  End: () => { stop(); go(frames.length - 1); },
  " ": () => timer ? stop() : play(),
  r: () => racing ? stop() : race(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target === $("slider") && event.key !== " " && event.key !== "r") return;  // it has its own
  if (event.key === " " && target.closest("button, summary")) return;  // presses it
  if (event.key.startsWith("Arrow") && target.closest(".wide")) return;  // scrolls it
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
$("back").addEventListener("click", KEYS.ArrowLeft);
$("next").addEventListener("click", KEYS.ArrowRight);
$("play").addEventListener("click", KEYS[" "]);
$("race").addEventListener("click", KEYS.r);
$("slider").addEventListener("input", () => { stop(); go(lastFrameOf(Number($("slider").value))); });
addEventListener("beforeprint", () => { $("all").open = $("as-text").open = true; });

$("title").textContent = `${run.method}, step by step`;
$("about").textContent = run.about;
$("setting").textContent = run.setting;
$("name-method").textContent = run.method;
$("slider").max = run.steps.length - 1;
$("race").title = `${Math.max(1, Math.round(RACE_MS / horizon))} times slower than measured`;
drawTracks();
listSteps();
go(0);

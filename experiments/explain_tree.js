// Draws a step's token tree, as a picture and in words. Stands in the page before explain.js.
"use strict";

// ---- Small helpers ----

const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
}
function html(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}
const count = (n, what) => n + " " + what + (n === 1 ? "" : "s");
const digits = (p, places) => p.toFixed(places).replace(/^0/, "");
const share = (p) => p >= 0.995 ? "1.0" : p < 0.0005 ? "0" : digits(p, p < 0.01 ? 3 : 2);
const visible = (text) => text.replace(/^ +| +$/g, (spaces) => "\u00b7".repeat(spaces.length))
    .replace(/\\x0a|\\n/g, "\u21b5");
const fateClass = (fate) => fate.replace(" ", "_");
const ms = (value) => value.toFixed(value < 10 ? 2 : 1) + " ms";

// ---- The tree ----

// What the rule said of each node: coins lie on the judged child, noise and draws on the token that
// they chose, which is a child or the token behind the path ("next").
function wordsOf(step) {
  const words = {};
  const childWith = (parent, token) => step.nodes.findIndex(
      (n, i) => i > 0 && n.parent === parent && n.token === token && n.role === "verify");
  for (const asked of step.asked) {
    if (asked.kind === "accept") {
      words[asked.node] = "coin " + digits(asked.coin, 3) +
          (asked.accepted ? " < " : " \u2265 ") + digits(asked.probability, 3);
    } else if (asked.kind === "draw") {
      words.next = "drawn by " + digits(asked.coin, 3);
    } else {
      const child = childWith(asked.node, asked.token);
      const key = child > 0 ? child : "next";
      words[key] = asked.kind === "coupled" && step.p_is_warped
          ? "noise " + asked.noise.toFixed(2) : "likeliest";
    }
  }
  return words;
}

function childrenOf(step, withNext) {
  const children = step.nodes.map(() => []);
  step.nodes.forEach((node, i) => { if (i > 0) children[node.parent].push(i); });
  if (withNext) {
    const last = step.path.length ? step.path[step.path.length - 1] : 0;
    children[last].push("next");
  }
  return children;
}

function layout(step, withNext, compact) {
  const children = childrenOf(step, withNext);
  const height = compact ? 24 : 52;
  const place = {};
  const columns = [];
  let y = 0;
  const label = (node) => {
    const text = visible(node === "next" ? step.text : step.nodes[node].text);
    return text.length > 16 ? text.slice(0, 15) + "\u2026" : text;
  };
  const visit = (node, depth) => {
    const text = label(node);
    const least = compact ? 62 : 126;  // of the longest figures
    columns[depth] = Math.max(columns[depth] || 0, least,
                              text.length * 8 + (compact ? 52 : 48));
    const below = node === "next" ? [] : children[node];
    const tops = below.map((child) => visit(child, depth + 1));
    const top = tops.length ? (tops[0] + tops[tops.length - 1]) / 2 : y;
    if (!tops.length) y += height + (compact ? 5 : 10);
    place[node] = {depth, top, text};
    return top;
  };
  visit(0, 0);
  const lefts = [];
  columns.reduce((x, width, depth) => { lefts[depth] = x; return x + width + 30; }, 1);
  for (const key in place) {
    place[key].left = lefts[place[key].depth];
    place[key].width = columns[place[key].depth];
  }
  const lastColumn = columns.length - 1;
  return {place, children, height, width: lefts[lastColumn] + columns[lastColumn] + 2, bottom: y};
}

function figuresOf(node, stage) {
  const parts = [];
  if (stage !== "draft") parts.push("p " + share(node.p));
  if (node.q !== null) parts.push("q " + share(node.q));
  return parts.join("  ");
}

function drawTree(step, stage) {
  const judged = stage === "judge" || stage === "keep";
  const compact = step.nodes.length > 22;
  const {place, children, height, width, bottom} = layout(step, judged, compact);
  const words = judged ? wordsOf(step) : {};
  const picture = svg("svg", {width, height: bottom + 2, viewBox: `0 0 ${width} ${bottom + 2}`,
                              role: "img", "aria-labelledby": "tree-title tree-desc"});
  picture.append(svg("title", {id: "tree-title"}, "Token tree of step " + step.step),
                 svg("desc", {id: "tree-desc"}, outline(step, stage)));
  const fate = (node) => node === "next" ? "next"
      : judged || node === 0 ? fateClass(step.nodes[node].fate)
      : step.nodes[node].role === "probe" ? "probe" : "proposed";
  const edges = svg("g", {});
  const boxes = svg("g", {});
  for (const key in place) {
    const node = key === "next" ? key : Number(key);
    const at = place[key];
    const middle = at.top + height / 2;
    if (node !== 0) {
      const parentKey = node === "next" ? children.findIndex((c) => c.includes("next"))
                                        : step.nodes[node].parent;
      const from = place[parentKey];
      const x0 = from.left + from.width, y0 = from.top + height / 2;
      const half = (at.left - x0) / 2;
      edges.append(svg("path", {class: fate(node),
          d: `M${x0} ${y0}C${x0 + half} ${y0} ${at.left - half} ${middle} ${at.left} ${middle}`}));
    }
    const box = svg("g", {class: fate(node)});
    box.append(svg("rect", {x: at.left, y: at.top + 1, width: at.width, height: height - 2, rx: 7}));
    const mark = {accepted: "\u2713", rejected: "\u2717", next: "+"}[fate(node)];
    const figures = node === "next" || node === 0 ? "" : figuresOf(step.nodes[node], stage);
    if (compact) {
      box.append(svg("text", {x: at.left + 8, y: middle + 4.5}, at.text));
      const right = node === "next" ? "+" : node === 0 || stage === "draft" ? ""
          : (mark ? mark + " " : "") + share(step.nodes[node].p);
      box.append(svg("text", {x: at.left + at.width - 7, y: middle + 4, class: "figures",
                              "text-anchor": "end"}, right));
    } else {
      const lines = [figures, words[key] || ""].filter(Boolean);
      const first = at.top + (lines.length === 2 ? 17 : lines.length === 1 ? 22 : 31);
      box.append(svg("text", {x: at.left + 10, y: first}, at.text));
      lines.forEach((line, i) => box.append(
          svg("text", {x: at.left + 10, y: first + 15 + 13 * i, class: "figures"}, line)));
      const right = {x: at.left + at.width - 8, y: at.top + 17, "text-anchor": "end"};
      if (node !== "next") box.append(svg("text", {...right, class: "figures"}, node));
      const beside = node === "next" ? 0 : 8 + 6.5 * String(node).length;
      if (mark) box.append(svg("text", {...right, x: right.x - beside, class: "mark"}, mark));
    }
    boxes.append(box);
  }
  picture.append(edges, boxes);
  $("tree").replaceChildren(picture);
}

// The tree in words: for those who cannot see the picture, and for print.
function outline(step, stage) {
  const judged = stage === "judge" || stage === "keep";
  const children = childrenOf(step, judged);
  const words = judged ? wordsOf(step) : {};
  const lines = [];
  const visit = (node, indent) => {
    if (node === "next") {
      lines.push(indent + `+ "${step.text}": the target's own token` +
                 (words.next ? ", " + words.next : ""));
      return;
    }
    const at = step.nodes[node];
    const says = [figuresOf(at, stage), words[node],
                  judged ? at.fate : at.role === "probe" ? "probe" : "drafted"];
    lines.push(indent + (node === 0 ? `"${at.text}": the last certain token`
                                    : `${node} "${at.text}": ${says.filter(Boolean).join(", ")}`));
    children[node].forEach((child) => visit(child, indent + "  "));
  };
  visit(0, "");
  return lines.join("\n");
}

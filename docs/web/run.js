// Runs a page's Python in the reader's browser: a box for a config.json where the page sizes models, and buttons under
// the cells of a lesson. Nothing is loaded before somebody asks; where nothing can be, the page stays as it is.
(() => {
  const here = document.currentScript.src;
  const mark = document.getElementById("runs");
  if (!mark) return;
  const { pyodide, wheel, notebook, example, command } = mark.dataset;
  const beside = (name) => new URL(name, here).href;

  const made = (tag, into, values = {}) => {
    const element = Object.assign(document.createElement(tag), values);
    into.append(element);
    return element;
  };

  // --- Python, once a page ---------------------------------------------------------------------------------------------

  let worker, loading;
  let turn = Promise.resolve();

  const ask = (message) =>
    new Promise((answer, fail) => {
      worker.onmessage = ({ data }) => (data.fault ? fail(new Error(data.fault)) : answer(data));
      worker.onerror = (event) => fail(new Error(event.message || "the worker cannot start"));
      worker.postMessage(message);
    });

  const load = () => {
    worker = new Worker(beside("worker.js"), { type: "module" });
    const packages = notebook ? ["numpy", "rich"] : ["rich"];
    const base = new URL(pyodide, here).href;
    return ask({ base, wheel: beside(wheel), code: beside("cells.py"), packages });
  };

  const stop = () => {
    worker?.terminate();
    worker = loading = undefined;
    done.clear();
  };

  // One at a time: what is asked later waits.
  const run = (output, name, values) => {
    turn = turn.then(async () => {
      output.hidden = false;
      output.replaceChildren(loading ? "running ..." : "loading Python, about 10 MB, once a page ...");
      try {
        loading ??= load();
        await loading;
        const { text, pictures, failed } = await ask({ name, values: values() });
        if (failed) done.clear(); // all from the start, next time
        output.replaceChildren();
        if (text) made("pre", output, { textContent: text });
        for (const picture of pictures) {
          const image = made("img", output);
          image.alt = "what the code drew";
          image.src = `data:image/svg+xml,${encodeURIComponent(coloured(picture))}`;
        }
        if (!text && !pictures.length) output.textContent = "done; it printed nothing";
      } catch (fault) {
        stop();
        output.textContent = `Python could not be loaded here (${fault.message}). In a terminal: ${command}`;
      }
    });
    return turn;
  };

  const coloured = (picture) => {
    const dark = document.body.dataset.mdColorScheme === "slate";
    return picture.replace("@media(prefers-color-scheme:dark)", dark ? "@media all" : "@media not all");
  };

  // --- a lesson's cells ------------------------------------------------------------------------------------------------

  const done = new Set(); // the cells that have run, by their place in the notebook

  const cellsOf = (book) =>
    book.cells.filter((cell) => cell.cell_type === "code").map((cell) => cell.source.join("").trim());

  const addCells = async () => {
    const sources = cellsOf(await (await fetch(notebook)).json());
    const asShown = new Map(sources.map((source, i) => [source, i]));
    const texts = [...sources];
    for (const code of document.querySelectorAll(".highlight pre code")) {
      const place = asShown.get(code.textContent.trim());
      if (place === undefined) continue;
      const block = code.closest(".highlight");
      const bar = Object.assign(document.createElement("div"), { className: "runs" });
      const output = Object.assign(document.createElement("div"), { className: "output", hidden: true });
      output.setAttribute("aria-live", "polite");
      block.after(bar, output);
      made("button", bar, { textContent: "Run", className: "md-button" }).onclick = () =>
        run(output, "cell", () => {
          const earlier = sources.map((_, i) => i).filter((i) => i < place && !done.has(i));
          [...earlier, place].forEach((i) => done.add(i));
          return [earlier.map((i) => texts[i]), texts[place]];
        });
      made("button", bar, { textContent: "Edit", className: "md-button" }).onclick = (event) => {
        const area = document.createElement("textarea");
        Object.assign(area, { value: sources[place], spellcheck: false, rows: sources[place].split("\n").length + 1 });
        area.setAttribute("aria-label", "the cell's code");
        area.oninput = () => (texts[place] = area.value);
        block.replaceWith(area);
        event.target.remove();
        area.focus();
      };
    }
  };

  // --- the box for a config.json ---------------------------------------------------------------------------------------

  const addBox = () => {
    const form = made("form", mark, { className: "box" });
    made("p", form, { textContent: "Yours, here: Python runs in this page, and nothing of it is sent anywhere." });
    const config = made("textarea", made("label", form, { textContent: "A config.json" }), { value: example });
    Object.assign(config, { rows: 12, spellcheck: false });
    const line = made("input", made("label", form, { textContent: "The command, with any of its options" }), { value: command });
    Object.assign(line, { spellcheck: false, autocapitalize: "off", autocomplete: "off" });
    made("button", form, { textContent: "Run", className: "md-button md-button--primary" });
    const output = made("div", form, { className: "output", hidden: true });
    output.setAttribute("aria-live", "polite");
    form.onsubmit = (event) => {
      event.preventDefault();
      run(output, "command", () => [line.value, config.value]);
    };
  };

  const instead = (why) => {
    const what = notebook ? "the code of this page" : "a config.json of yours";
    made("p", mark, { className: "plain", textContent: `To run ${what} here, ${why}. In a terminal: ${command}` });
  };

  if (location.protocol === "file:") instead("the page must come from a server");
  else if (!window.Worker || !window.WebAssembly) instead("the browser must know workers and WebAssembly");
  else if (notebook) addCells().catch(() => instead("its notebook must lie beside it"));
  else addBox();
})();

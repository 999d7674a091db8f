// Python beside the page, so that the page stays awake. The first message says what to load, each later one what to run.
let python;

async function load({ base, wheel, code, packages }) {
  const { loadPyodide } = await import(`${base}pyodide.mjs`);
  const found = await loadPyodide({ indexURL: base });
  await found.loadPackage(packages, { messageCallback: () => {} });
  const missing = packages.filter((name) => !(name in found.loadedPackages));
  if (missing.length) throw new Error(`${missing} could not be loaded`);
  found.unpackArchive(await (await fetch(wheel)).arrayBuffer(), "wheel");
  found.runPython(await (await fetch(code)).text());
  python = found;
  return {};
}

function run({ name, values }) {
  const asked = python.globals.get(name);
  return JSON.parse(asked(...values.map((value) => python.toPy(value))));
}

onmessage = async ({ data }) => {
  try {
    postMessage(data.name ? run(data) : await load(data));
  } catch (fault) {
    postMessage({ fault: String(fault?.message ?? fault) });
  }
};

// Translates WGSL texts to MSL and HLSL by naga, one line of JSON each: the translations, or what failed.
// usage: node translate.mjs FOLDER_OF_NAGA FILE      (FILE has lines of JSON with a label and a text for naga)
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const naga = await import(pathToFileURL(`${folder}/dist/node.js`).href);
const metal = (module, info) => naga.writeMsl(module, info, { langVersion: [2, 4] });
const direct3d = (module, info) => naga.writeHlsl(module, info, { shaderModel: "6_2" });

for (const line of readFileSync(file, "utf8").trim().split("\n")) {
	const { label, naga: source } = JSON.parse(line);
	const found = { label };
	let step = "WGSL";
	try {
		const module = naga.parseWgsl(source);
		const info = naga.validate(module);
		for (const [name, write] of [["MSL", metal], ["HLSL", direct3d]]) {
			step = name;
			found[name] = write(module, info);
		}
		info.free();
		module.free();
	} catch (error) {
		found.failed = step;
		found.why = error.formatted ?? String(error);
	}
	console.log(JSON.stringify(found));
}

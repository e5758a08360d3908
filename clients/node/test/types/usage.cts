// The types, as a CommonJS program in TypeScript sees them.

import thunderhead = require("thunderhead");

export async function main(): Promise<void> {
  const db: thunderhead.Client = await thunderhead.connect("thunderhead://localhost");
  const table: thunderhead.Table = await db.table("users");
  const found: thunderhead.Found | undefined = await table.get("ada");
  console.log(found?.value.toString(), found?.version);
  await db.close();
}

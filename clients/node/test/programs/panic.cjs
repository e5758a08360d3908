// Provokes a panic in the native part.
require("thunderhead");
const { native } = require("../../dist/native.js");
try {
  native().provokePanic();
} catch (error) {
  console.log(`caught: ${error.message}`);
}

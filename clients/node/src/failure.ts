/**
 * A failure as it came over the border. It becomes an error only in an `async` function that the
 * user's code awaits: there, the error's stack leads to the user's code.
 */
export class Failure {
  constructor(
    readonly number: number,
    readonly isUnknown: boolean,
    readonly version: bigint,
    readonly text: string,
  ) {}
}

import java.util.concurrent.Callable;

/** What the programs for Java share: see docs/testing/applications.md. */
final class Common {
    /** A call that fails for so many nanoseconds has failed for good. */
    private static final long PATIENCE = 60_000_000_000L;

    private Common() {}

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Repeats a call until the server has acknowledged it. A killed server needs a while. */
    static <T> T insist(Callable<T> call) throws Exception {
        long began = System.nanoTime();
        while (true) {
            try {
                return call.call();
            } catch (Exception error) {
                if (System.nanoTime() - began > PATIENCE) {
                    throw error;
                }
                say("again: " + error.getMessage());
                Thread.sleep(50);
            }
        }
    }

    static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}

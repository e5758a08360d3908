package dev.thunderhead;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * Loads the native library once: the file that the property {@code thunderhead.nativeFile} names, or
 * the one in the jar.
 *
 * <p>The one in the jar is copied into a new directory that only this user can read, loaded, and
 * deleted again at once. The directory for temporary files must allow programs ({@code
 * java.io.tmpdir} names it).
 */
final class Library {
  private static final String PROPERTY = "thunderhead.nativeFile";
  private static final String NAME = "libthunderhead_java.so";

  /** The reason why the library could not be loaded, for later calls. */
  private static UnsatisfiedLinkError failure;

  private static boolean isLoaded;

  private Library() {}

  static synchronized void load() {
    if (failure != null) {
      throw failure;
    }
    if (isLoaded) {
      return;
    }
    try {
      String file = System.getProperty(PROPERTY);
      if (file != null) {
        System.load(Path.of(file).toAbsolutePath().toString());
      } else {
        loadCopy(resource());
      }
      isLoaded = true;
    } catch (IOException error) {
      failure = new UnsatisfiedLinkError(
          "the native library cannot be copied out of the jar: " + error
              + "; name another directory with -Djava.io.tmpdir, or the file with -D" + PROPERTY);
      failure.initCause(error);
      throw failure;
    } catch (UnsatisfiedLinkError error) {
      failure = error;
      throw error;
    }
  }

  /** Returns the place of the library for this system in the jar. */
  static String resource() {
    String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String machine =
        switch (System.getProperty("os.arch")) {
          case "amd64", "x86_64" -> "x86_64";
          case "aarch64", "arm64" -> "aarch64";
          default -> System.getProperty("os.arch");
        };
    return "/dev/thunderhead/native/" + system + "-" + machine + "/" + NAME;
  }

  private static void loadCopy(String resource) throws IOException {
    try (InputStream library = Library.class.getResourceAsStream(resource)) {
      if (library == null) {
        throw new UnsatisfiedLinkError(
            "the jar has no native library for this system, at " + resource
                + "; build one and name it with -D" + PROPERTY);
      }
      // Both have the rights of their owner alone.
      Path directory = Files.createTempDirectory("thunderhead-");
      Path copy = directory.resolve(NAME);
      try {
        Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
        try {
          System.load(copy.toString());
        } catch (UnsatisfiedLinkError error) {
          UnsatisfiedLinkError helpful = new UnsatisfiedLinkError(
              error.getMessage() + "; if " + directory.getParent() + " allows no programs, name"
                  + " another directory with -Djava.io.tmpdir, or the file with -D" + PROPERTY);
          helpful.initCause(error);
          throw helpful;
        }
      } finally {
        // The loaded library needs its file no more.
        Files.deleteIfExists(copy);
        Files.deleteIfExists(directory);
      }
    }
  }
}

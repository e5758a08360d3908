package dev.thunderhead;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/** Tells virtual threads from others. Java 17 has none. */
final class Threads {
  private static final MethodHandle IS_VIRTUAL = find();

  private Threads() {}

  private static MethodHandle find() {
    MethodType type = MethodType.methodType(boolean.class);
    try {
      return MethodHandles.publicLookup().findVirtual(Thread.class, "isVirtual", type);
    } catch (ReflectiveOperationException error) {
      return MethodHandles.dropArguments(
          MethodHandles.constant(boolean.class, false), 0, Thread.class);
    }
  }

  static boolean isVirtual() {
    try {
      return (boolean) IS_VIRTUAL.invokeExact(Thread.currentThread());
    } catch (Throwable error) {
      throw new AssertionError("isVirtual throws nothing", error);
    }
  }
}

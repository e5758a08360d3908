package dev.thunderhead;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The future of an operation, or of a step behind one.
 *
 * <p>Any end of the future before its result comes (cancel, a timeout) cancels the operation.
 *
 * @param <T> the type of the result
 */
final class Operation<T> extends CompletableFuture<T> {
  private final Queue queue;

  /** Null for a step behind an operation. */
  private final Call<T> call;

  /** The queue's number of the submission; -1 as long as it is not known. */
  private volatile long number = -1;

  /** Whether to cancel the submission once its number is known. */
  private volatile boolean isUnwanted;

  Operation(Queue queue, Call<T> call) {
    this.queue = queue;
    this.call = call;
  }

  @Override
  public <U> CompletableFuture<U> newIncompleteFuture() {
    return new Operation<>(queue, null);
  }

  Call<T> call() {
    return call;
  }

  /** Notes the number of the submission. */
  void began(long number) {
    this.number = number;
    if (isUnwanted || isDone()) {
      queue.cancel(number);
    }
  }

  /** Cancels the submission, now or once its number is known. */
  private void cancelSubmission() {
    isUnwanted = true;
    long known = number;
    if (known >= 0) {
      queue.cancel(known);
    }
  }

  /** Takes the result out of a completion, whose head has been read. */
  void take(ByteBuffer from, int results) {
    int start = from.position();
    T value;
    try {
      value = call.take(from, results);
    } catch (ThunderheadException error) {
      super.completeExceptionally(error);
      return;
    } catch (Throwable error) {
      // There is no memory for the result, or the client has a bug. The next completion is sound.
      Call.skip(from.position(start), results);
      super.completeExceptionally(error);
      return;
    }
    super.complete(value);
  }

  void fail(Throwable error) {
    super.completeExceptionally(error);
  }

  private boolean ended(boolean isEnd) {
    if (isEnd && call != null) {
      cancelSubmission();
    }
    return isEnd;
  }

  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    return ended(super.cancel(mayInterruptIfRunning));
  }

  @Override
  public boolean complete(T value) {
    return ended(super.complete(value));
  }

  @Override
  public boolean completeExceptionally(Throwable error) {
    return ended(super.completeExceptionally(error));
  }

  @Override
  public T get() throws InterruptedException, ExecutionException {
    mayWait();
    return super.get();
  }

  @Override
  public T get(long timeout, TimeUnit unit)
      throws InterruptedException, ExecutionException, TimeoutException {
    mayWait();
    return super.get(timeout, unit);
  }

  @Override
  public T join() {
    mayWait();
    return super.join();
  }

  /** The thread that completes futures would wait for itself. */
  private void mayWait() {
    if (!isDone() && queue.isCompleter()) {
      throw new IllegalStateException(
          "a step of a future must not wait for another future of the same client: use"
              + " thenCompose, or thenApplyAsync for the step");
    }
  }

  /**
   * Waits for the result. If the thread is interrupted, this cancels the operation and waits for
   * its definite end, which comes at once; the interrupt flag stays set.
   */
  T await() {
    mayWait();
    boolean isInterrupted = false;
    try {
      while (true) {
        try {
          return super.get();
        } catch (InterruptedException interrupt) {
          isInterrupted = true;
          cancelSubmission();
        } catch (ExecutionException error) {
          if (error.getCause() instanceof ThunderheadException failure) {
            throw failure.here();
          }
          if (error.getCause() instanceof Error failure) {
            throw failure;
          }
          throw new InternalException("the client has a bug: " + error.getCause());
        }
      }
    } finally {
      if (isInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}

# Sidekiq: jobs, some of them scheduled, and a worker process.

require "sidekiq"

PORT, COUNT, DIRECTORY = ENV["JOBS_PORT"] || ARGV[0], (ARGV[1] || 0).to_i, ENV["JOBS_DIRECTORY"] || ARGV[2]

# A program that makes no progress for so many seconds has failed.
PATIENCE = 60

# Sidekiq takes a job with BRPOP. If the server is killed before the reply arrives, the job is gone,
# as with any server. So each of two kills may lose a job of each of the four threads.
THREADS = 4
LOST_MAX = 2 * THREADS

settings = { url: "redis://127.0.0.1:#{PORT}/0" }
Sidekiq.configure_client { |config| config.redis = settings }
Sidekiq.configure_server do |config|
  config.redis = settings
  # Scheduled jobs are looked for once a second.
  config.respond_to?(:average_scheduled_poll_interval=) ? config.average_scheduled_poll_interval = 1 : config[:average_scheduled_poll_interval] = 1
end

class Square
  include Sidekiq::Job
  sidekiq_options retry: 5

  def perform(job)
    File.open(File.join(DIRECTORY, "done"), "a") { |file| file.syswrite("#{job}\n") }
  end
end

def say(line)
  puts line
  $stdout.flush
end

# Repeats a call until the server has acknowledged it. A killed server needs a while.
def insist
  stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
  begin
    yield
  rescue StandardError => error
    raise if Process.clock_gettime(Process::CLOCK_MONOTONIC) > stop
    say "again: #{error.class}: #{error.message}"
    sleep 0.05
    retry
  end
end

def done
  path = File.join(DIRECTORY, "done")
  File.exist?(path) ? File.readlines(path).map(&:to_i) : []
end

def await_all
  latest = 0
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  loop do
    all = done
    distinct = all.uniq
    if distinct.size != latest
      latest = distinct.size
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      say "done #{latest}"
    end
    return say("all #{COUNT} done, #{all.size - COUNT} of them again") if latest == COUNT
    patience = COUNT - latest <= LOST_MAX ? PATIENCE / 4 : PATIENCE
    if Process.clock_gettime(Process::CLOCK_MONOTONIC) - began > patience
      missing = (0...COUNT).to_a - distinct
      return say("#{latest} of #{COUNT} done, #{missing.size} were on their way to a thread") if missing.size <= LOST_MAX
      abort "#{missing.size} jobs were acknowledged and never done: #{missing.first(10)}"
    end
    sleep 0.1
  end
end

if __FILE__ == $PROGRAM_NAME
  environment = { "JOBS_PORT" => PORT, "JOBS_DIRECTORY" => DIRECTORY }
  log = File.join(DIRECTORY, "worker.log")
  words = ["sidekiq", "-r", File.expand_path(__FILE__), "-c", THREADS.to_s]
  worker = spawn(environment, *words, out: log, err: log)
  begin
    COUNT.times do |job|
      insist { job % 10 == 9 ? Square.perform_in(1, job) : Square.perform_async(job) }
      say "begun #{job + 1}" if job % 50 == 49
    end
    await_all
  ensure
    Process.kill(:KILL, worker)
    Process.wait(worker)
  end
end

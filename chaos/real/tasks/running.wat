;; Says that it runs, and then waits an hour at a time until it is ended. running.wasm has the same code and data.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $fd_write (i32.const 1) (i32.const 1032) (i32.const 1) (i32.const 1040)))
    (loop (drop (call $poll_oneoff (i32.const 1048) (i32.const 1096) (i32.const 1) (i32.const 1128))) (br 0)))
  (data (i32.const 1024) "running\0a")
  (data (i32.const 1032) "\00\04\00\00\08\00\00\00") ;; the text above
  (data (i32.const 1064) "\01")                      ;; the monotonic clock
  (data (i32.const 1072) "\00\a0\b8\30\46\03"))      ;; an hour

;; Where a table file's block with a key is: the step from the file's index to the block.
;;
;; input   key u64 | entry ...      an entry: first key of the block u64 | offset u64 | length u64, by rising keys; all little-endian
;; result  offset u64 | length u64 of the last block that begins at the key or before it; nothing when there is none
(module
  (memory (export "memory") 1)
  ;; The input lies behind 16 bytes that are free for a small result.
  (func (export "alloc") (param $len i32) (result i32)
    (local $pages i32)
    (local.set $pages
      (i32.sub
        (i32.shr_u (i32.add (local.get $len) (i32.const 65551)) (i32.const 16))
        (memory.size)))
    (if (i32.gt_s (local.get $pages) (i32.const 0))
      (then (drop (memory.grow (local.get $pages)))))
    (i32.const 16))
  (func $entry (param $index i32) (param $at i32) (result i32)
    (i32.add (local.get $index) (i32.mul (local.get $at) (i32.const 24))))
  (func (export "run") (param $ptr i32) (param $len i32) (result i64)
    (local $key i64) (local $low i32) (local $high i32) (local $middle i32)
    (if (i32.lt_u (local.get $len) (i32.const 8)) (then (unreachable)))
    (local.set $key (i64.load (local.get $ptr)))
    (local.set $ptr (i32.add (local.get $ptr) (i32.const 8)))
    (local.set $high (i32.div_u (i32.sub (local.get $len) (i32.const 8)) (i32.const 24)))
    ;; Entries before low begin at the key or before it, those from high on behind it.
    (block $found
      (loop $halve
        (br_if $found (i32.ge_u (local.get $low) (local.get $high)))
        (local.set $middle
          (i32.shr_u (i32.add (local.get $low) (local.get $high)) (i32.const 1)))
        (if (i64.le_u
              (i64.load (call $entry (local.get $ptr) (local.get $middle)))
              (local.get $key))
          (then (local.set $low (i32.add (local.get $middle) (i32.const 1))))
          (else (local.set $high (local.get $middle))))
        (br $halve)))
    (if (i32.eqz (local.get $low)) (then (return (i64.const 0))))
    (i64.or
      (i64.shl
        (i64.extend_i32_u
          (i32.add
            (call $entry (local.get $ptr) (i32.sub (local.get $low) (i32.const 1)))
            (i32.const 8)))
        (i64.const 32))
      (i64.const 16))))

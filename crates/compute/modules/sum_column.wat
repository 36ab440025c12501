;; The sum of a column of rows of fixed width.
;;
;; input   bytes of a row u32 | place of the column in the row u32 | row ...     the column is u64; all little-endian
;; result  sum u64                                                               a sum that does not fit is a trap
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
  (func (export "run") (param $ptr i32) (param $len i32) (result i64)
    (local $row i32) (local $at i32) (local $end i32) (local $sum i64) (local $next i64)
    (if (i32.lt_u (local.get $len) (i32.const 8)) (then (unreachable)))
    (local.set $row (i32.load (local.get $ptr)))
    (local.set $at (i32.load offset=4 (local.get $ptr)))
    ;; The column lies in the row.
    (if (i64.gt_u
          (i64.add (i64.extend_i32_u (local.get $at)) (i64.const 8))
          (i64.extend_i32_u (local.get $row)))
      (then (unreachable)))
    (local.set $end (i32.add (local.get $ptr) (local.get $len)))
    (local.set $ptr (i32.add (local.get $ptr) (i32.const 8)))
    (block $done
      (loop $rows
        (br_if $done (i32.lt_u (i32.sub (local.get $end) (local.get $ptr)) (local.get $row)))
        (local.set $next
          (i64.add (local.get $sum) (i64.load (i32.add (local.get $ptr) (local.get $at)))))
        (if (i64.lt_u (local.get $next) (local.get $sum)) (then (unreachable)))
        (local.set $sum (local.get $next))
        (local.set $ptr (i32.add (local.get $ptr) (local.get $row)))
        (br $rows)))
    (i64.store (i32.const 0) (local.get $sum))
    (i64.const 8)))

;; The rows of fixed width whose column compares with a value as asked.
;;
;; input   bytes of a row u32 | place of the column in the row u32 | comparison u32 | value u64 | row ...
;;         the column is u64; comparison 0 is ==, 1 !=, 2 <, 3 <=; all little-endian
;; result  those rows, in their order
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
  (func $holds (param $left i64) (param $how i32) (param $right i64) (result i32)
    (if (i32.eq (local.get $how) (i32.const 0))
      (then (return (i64.eq (local.get $left) (local.get $right)))))
    (if (i32.eq (local.get $how) (i32.const 1))
      (then (return (i64.ne (local.get $left) (local.get $right)))))
    (if (i32.eq (local.get $how) (i32.const 2))
      (then (return (i64.lt_u (local.get $left) (local.get $right)))))
    (if (i32.eq (local.get $how) (i32.const 3))
      (then (return (i64.le_u (local.get $left) (local.get $right)))))
    (unreachable))
  (func (export "run") (param $ptr i32) (param $len i32) (result i64)
    (local $row i32) (local $at i32) (local $how i32) (local $value i64)
    (local $end i32) (local $out i32) (local $begin i32)
    (if (i32.lt_u (local.get $len) (i32.const 20)) (then (unreachable)))
    (local.set $row (i32.load (local.get $ptr)))
    (local.set $at (i32.load offset=4 (local.get $ptr)))
    (local.set $how (i32.load offset=8 (local.get $ptr)))
    (local.set $value (i64.load offset=12 (local.get $ptr)))
    ;; The column lies in the row.
    (if (i64.gt_u
          (i64.add (i64.extend_i32_u (local.get $at)) (i64.const 8))
          (i64.extend_i32_u (local.get $row)))
      (then (unreachable)))
    (local.set $end (i32.add (local.get $ptr) (local.get $len)))
    (local.set $begin (i32.add (local.get $ptr) (i32.const 20)))
    (local.set $out (local.get $begin))
    (local.set $ptr (local.get $begin))
    (block $done
      (loop $rows
        (br_if $done (i32.lt_u (i32.sub (local.get $end) (local.get $ptr)) (local.get $row)))
        (if (call $holds
              (i64.load (i32.add (local.get $ptr) (local.get $at)))
              (local.get $how)
              (local.get $value))
          (then
            ;; Rows move towards the beginning, over those that are not wanted.
            (memory.copy (local.get $out) (local.get $ptr) (local.get $row))
            (local.set $out (i32.add (local.get $out) (local.get $row)))))
        (local.set $ptr (i32.add (local.get $ptr) (local.get $row)))
        (br $rows)))
    (i64.or
      (i64.shl (i64.extend_i32_u (local.get $begin)) (i64.const 32))
      (i64.extend_i32_u (i32.sub (local.get $out) (local.get $begin))))))

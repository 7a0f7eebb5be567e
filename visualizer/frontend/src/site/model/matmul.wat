;; The matrix product, four numbers at a time (SIMD). Almost all of a forward pass is spent here.
;;
;;   out[t][r] = sum over c of matrix[r][c] * x[t][c]
;;
;; All sizes are multiples of four. Four rows of the matrix are multiplied at once, so that each part of x
;; is loaded once for the four. They stay in the processor's cache while all tokens are multiplied with
;; them: that is why eight tokens take less than eight times as long as one.
(module
  (import "workspace" "memory" (memory 1))

  ;; The sum of a vector's four numbers.
  (func $sum (param $v v128) (result f32)
    (f32.add
      (f32.add (f32x4.extract_lane 0 (local.get $v)) (f32x4.extract_lane 1 (local.get $v)))
      (f32.add (f32x4.extract_lane 2 (local.get $v)) (f32x4.extract_lane 3 (local.get $v)))))

  ;; out, matrix and x are addresses in the memory.
  (func (export "multiply")
    (param $out i32) (param $matrix i32) (param $x i32)
    (param $tokens i32) (param $rows i32) (param $columns i32)
    (local $row_bytes i32) (local $out_bytes i32) (local $row i32) (local $end i32)
    (local $x_at i32) (local $out_at i32) (local $left i32) (local $c i32)
    (local $row1 i32) (local $row2 i32) (local $row3 i32)
    (local $part v128) (local $sum0 v128) (local $sum1 v128) (local $sum2 v128) (local $sum3 v128)
    (local.set $row_bytes (i32.mul (local.get $columns) (i32.const 4)))
    (local.set $out_bytes (i32.mul (local.get $rows) (i32.const 4)))
    (local.set $row (local.get $matrix))
    (local.set $end
      (i32.add (local.get $matrix) (i32.mul (local.get $rows) (local.get $row_bytes))))

    (loop $rows
      (local.set $row1 (i32.add (local.get $row) (local.get $row_bytes)))
      (local.set $row2 (i32.add (local.get $row1) (local.get $row_bytes)))
      (local.set $row3 (i32.add (local.get $row2) (local.get $row_bytes)))
      (local.set $x_at (local.get $x))
      (local.set $out_at (local.get $out))
      (local.set $left (local.get $tokens))

      (loop $tokens
        (local.set $sum0 (v128.const f32x4 0 0 0 0))
        (local.set $sum1 (v128.const f32x4 0 0 0 0))
        (local.set $sum2 (v128.const f32x4 0 0 0 0))
        (local.set $sum3 (v128.const f32x4 0 0 0 0))
        (local.set $c (i32.const 0))

        (loop $columns
          (local.set $part (v128.load (i32.add (local.get $x_at) (local.get $c))))
          (local.set $sum0 (f32x4.add (local.get $sum0) (f32x4.mul (local.get $part)
            (v128.load (i32.add (local.get $row) (local.get $c))))))
          (local.set $sum1 (f32x4.add (local.get $sum1) (f32x4.mul (local.get $part)
            (v128.load (i32.add (local.get $row1) (local.get $c))))))
          (local.set $sum2 (f32x4.add (local.get $sum2) (f32x4.mul (local.get $part)
            (v128.load (i32.add (local.get $row2) (local.get $c))))))
          (local.set $sum3 (f32x4.add (local.get $sum3) (f32x4.mul (local.get $part)
            (v128.load (i32.add (local.get $row3) (local.get $c))))))
          (local.set $c (i32.add (local.get $c) (i32.const 16)))
          (br_if $columns (i32.lt_u (local.get $c) (local.get $row_bytes))))

        (f32.store offset=0 (local.get $out_at) (call $sum (local.get $sum0)))
        (f32.store offset=4 (local.get $out_at) (call $sum (local.get $sum1)))
        (f32.store offset=8 (local.get $out_at) (call $sum (local.get $sum2)))
        (f32.store offset=12 (local.get $out_at) (call $sum (local.get $sum3)))
        (local.set $x_at (i32.add (local.get $x_at) (local.get $row_bytes)))
        (local.set $out_at (i32.add (local.get $out_at) (local.get $out_bytes)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $tokens (local.get $left)))

      (local.set $out (i32.add (local.get $out) (i32.const 16)))
      (local.set $row (i32.add (local.get $row3) (local.get $row_bytes)))
      (br_if $rows (i32.lt_u (local.get $row) (local.get $end))))))

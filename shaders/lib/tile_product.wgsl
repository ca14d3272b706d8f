        // The product of a 64 x 16 and a 16 x 64 tile in workgroup memory, 4 x 4 of it a thread.
{% for q in range(4) %}
        {
{% for j in range(4) %}
            let b{{ j }} = right[{{ (q * 4 + j) * 16 }}u + tx];
{% endfor %}
{% for i in range(4) %}
            let a{{ i }} = left[(ty * 4u + {{ i }}u) * 5u + {{ q }}u];
            acc{{ i }} += a{{ i }}.x * b0 + a{{ i }}.y * b1 + a{{ i }}.z * b2 + a{{ i }}.w * b3;
{% endfor %}
        }
{% endfor %}
